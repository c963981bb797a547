# Each target does all its own set-up: the demo in .venv-demo, which has nothing but what the demo
# needs, the tests of Ray in .venv-ray, the others in .venv, with the developers' tools. PYTHON may
# be any Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
DEMO := .venv-demo/bin
RAY := .venv-ray/bin

.PHONY: demo test check attack cluster leaderboard docs dist format clean

$(BIN)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(DEMO)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-demo
	$(DEMO)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo]'
	touch $@

$(RAY)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-ray
	$(RAY)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,ray,serve-ray]'
	touch $@

demo: $(DEMO)/.installed
	@$(DEMO)/tapr demo

test: $(BIN)/.installed
	$(BIN)/pytest -n auto --dist worksteal

check: $(BIN)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto --dist worksteal
	$(MAKE) docs

# The attack at full scale, an hour or so: a table of what came of it (docs/reliability.md), and an
# error if anything did that should not. TAPR_ATTACK_TABLE=FILE writes the table.
attack: $(BIN)/.installed
	TAPR_ATTACK=$${TAPR_ATTACK:-50} $(BIN)/pytest -n auto tests/attack

# The tests that need Ray, which skip elsewhere, in an environment that has it (docs/cluster.md).
cluster: $(RAY)/.installed
	$(RAY)/pytest -m ray tests/unit

# The leaderboard of docs/leaderboard.md: an hour or two of records, then tables, figure and page.
leaderboard: $(BIN)/.installed
	$(BIN)/tapr bench leaderboard --size medium --out runs/leaderboard
	$(BIN)/python tools/leaderboard.py runs/leaderboard

# The site, in site/; a warning or a dead link is an error.
docs: $(BIN)/.installed
	$(BIN)/python tools/cli_reference.py
	$(BIN)/zensical build --clean --strict
	$(BIN)/python tools/widen_navigation.py site
	$(BIN)/python tools/check_links.py site

# Wheel and source distribution in dist/, each tried in a new environment without the checkout.
dist: $(BIN)/.installed
	rm -rf dist
	$(BIN)/python -m build
	set -e; for file in dist/*.whl dist/*.tar.gz; do \
		$(PYTHON) -m venv --clear dist/.venv; \
		dist/.venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt $$file; \
		(cd dist && .venv/bin/python ../tools/smoke.py); \
	done
	rm -rf dist/.venv

format: $(BIN)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf site .cache .venv .venv-demo .venv-ray .mypy_cache .ruff_cache .pytest_cache
