# make demo       the main job: reference and random policy over all 128 FET tasks, layouts and pictures in demo-out/
# make test       lint, type check and the default tests
# make test-slow  the tests that take minutes
# make test-real  the tests that need EDAGYM_REAL_DATA, a folder with the original images
# make docs       refresh the README's pictures and id table, the pages of all ids, and the notebooks' outputs
# make gallery    the contours of all tasks, with and without their reference layouts, in demo-out/gallery*/

PYTHON ?= python3
PIP_INSTALL = -m pip install --disable-pip-version-check --quiet -c constraints.txt
WORKERS ?= 2

DEMO_PY := .venv/bin/python
TEST_PY := .venv-test/bin/python
SOURCES := task_assets spaces verifiers envs wrappers baselines

.PHONY: demo gallery docs test test-slow test-real real-data lint types clean python-version

demo: .venv/.installed
	$(DEMO_PY) -m edagym demo --out demo-out

gallery: .venv/.installed
	$(DEMO_PY) -m edagym show --gallery demo-out/gallery
	$(DEMO_PY) -m edagym show --gallery demo-out/gallery-references --references

test: lint types
	$(TEST_PY) -m pytest -n $(WORKERS)

test-slow: .venv-test/.installed
	$(TEST_PY) -m pytest -n $(WORKERS) -m slow

test-real: real-data .venv-test/.installed
	$(TEST_PY) -m pytest -n $(WORKERS) -m real

# Before the installation, which takes minutes.
real-data:
	@test -n "$(EDAGYM_REAL_DATA)" || { echo "EDAGYM_REAL_DATA is not set: name the folder with the original masks and micrographs" >&2; exit 1; }
	@test -d "$(EDAGYM_REAL_DATA)" || { echo "EDAGYM_REAL_DATA=$(EDAGYM_REAL_DATA) is not a folder" >&2; exit 1; }

lint: .venv-test/.installed
	$(TEST_PY) -m ruff check .
	$(TEST_PY) -m ruff format --check .

# mypy can't see through an editable install of mapped folders: give it the package as a tree of links.
types: .venv-test/.installed
	rm -rf build/types && mkdir -p build/types/edagym
	ln -s $(CURDIR)/src/edagym/* $(addprefix $(CURDIR)/,$(SOURCES)) build/types/edagym/
	MYPYPATH=build/types $(TEST_PY) -m mypy -p edagym

docs: .venv-test/.installed
	$(TEST_PY) -m edagym show L4/case_23 --svg docs/images/l4-case-23-task.svg
	$(TEST_PY) -m edagym show L4/case_23 --reference --svg docs/images/l4-case-23-reference.svg
	$(TEST_PY) -m edagym show Reasoning-L1/q7 --png docs/images/drc-reasoning-l1-q7-task.png
	$(TEST_PY) -m edagym show Reasoning-L1/q7 --reference --png docs/images/drc-reasoning-l1-q7-reference.png
	mkdir -p build && $(TEST_PY) -m edagym list --markdown > build/ids.md
	sed -i -e '/^<!-- ids:/,/^<!-- \/ids/{//!d}' -e '/^<!-- ids:/r build/ids.md' README.md
	$(TEST_PY) -m edagym generate docs --out docs/environments --results docs/results.json
	for p in notebooks/*.ipynb; do $(TEST_PY) -c "import sys, nbformat as f, nbclient as c; p = sys.argv[1]; n = f.read(p, 4); c.NotebookClient(n, record_timing=False, coalesce_streams=True).execute(); f.write(n, p)" $$p || exit 1; done

.venv/.installed: pyproject.toml constraints.txt | python-version
	$(PYTHON) -m venv .venv
	$(DEMO_PY) $(PIP_INSTALL) -e .
	@touch $@

.venv-test/.installed: pyproject.toml constraints.txt | python-version
	$(PYTHON) -m venv .venv-test
	$(TEST_PY) $(PIP_INSTALL) -e ".[dev,rl,llm,ppa,distributed,docs]"
	@touch $@

python-version:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "edagym needs Python 3.11 or newer; call make with PYTHON=python3.11" >&2; exit 1; }

clean:
	rm -rf .venv .venv-test build demo-out .mypy_cache .pytest_cache .ruff_cache
