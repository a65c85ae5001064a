"""Tests of the reference vendor."""
