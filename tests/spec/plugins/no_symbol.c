/* A library that is no plugin. */
int something_else(void) { return 1; }
