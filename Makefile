# Two commands: `make certify [VENDOR=x]` certifies a vendor's plugin, `make test` runs the project's own tests.
# Each makes .venv, installs and builds all that it needs; a fresh machine needs Python 3.10+ and GCC.
VENDOR ?= reference
WORKERS ?= 2
PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/.installed

.PHONY: certify test twins bridge lint format install clean

certify: $(INSTALLED)
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" ci/certify.sh $(VENDOR) -n $(WORKERS) $(CERTIFY_ARGS)

test: $(INSTALLED) bridge
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" pytest -n $(WORKERS) $(TEST_ARGS)

twins: $(INSTALLED)
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" pytest tests/twins -n $(WORKERS) --all-twins $(TEST_ARGS)

# To torch; `import torch_fl` builds it too, but this says so where it can be seen.
bridge: $(INSTALLED)
	@$(VENV)/bin/torch-fl build

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(INSTALLED)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

install: $(INSTALLED)

$(INSTALLED): pyproject.toml ci/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet -c ci/constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) torch-fl-report
	$(MAKE) -C runtime/reference clean
