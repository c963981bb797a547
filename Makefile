# Each target does all its own set-up in .venv. PYTHON may be any Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
# Two torch threads beside a busy neighbour are slower than one; passive waiting keeps that mild.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: demo test check format clean

$(BIN)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(BIN)/.installed
	$(BIN)/tapr data get cifar10
	$(BIN)/tapr bench demo --out runs/demo
	$(BIN)/tapr report runs/demo -o runs/demo/report.html

test: $(BIN)/.installed
	$(BIN)/pytest -n auto

check: $(BIN)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto

format: $(BIN)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
