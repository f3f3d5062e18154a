# `make demo` and `make test` need Python 3.11 or newer (with venv), gcc and make; nothing else first.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# An installation is as good as what it was made from: these stamps carry its checksum.
checksum = $(shell { pwd; cat pyproject.toml $(1); } | cksum | cut -d ' ' -f 1)
INSTALLED := $(VENV)/installed-$(call checksum,requirements.lock)
INSTALLED_TEST := $(VENV)/installed-test-$(call checksum,requirements-test.lock)
INSTALLED_TORCH := $(VENV)/installed-torch-$(call checksum,requirements-torch.lock)
INSTALLED_DOCS := $(VENV)/installed-docs-$(call checksum,requirements-docs.lock)

.PHONY: demo test format docs docs-long wheel torch torch-suite torch-suite-mrc torch-suite-gloo \
	torch-suite-cuts torch-newest torch-others interop lock clean

demo: $(INSTALLED)
	$(BIN)/mrc demo

test: $(INSTALLED_TEST)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	@# Tests of real frames keep real time, beside others on few cores: what fails there runs again, alone.
	$(BIN)/python -m pytest -n auto \
		|| { [ $$? = 1 ] && echo "FAILED, once more, alone:" && $(BIN)/python -m pytest -n 0 --last-failed; }

# What the tests of `torch/` need; without it they are skipped. On Linux it is the wheel for processors
# alone, of PyTorch's own index (PIP_EXTRA_INDEX_URL): PyPI's brings gigabytes for GPUs.
torch: $(INSTALLED_TORCH)

# PyTorch's own tests of torch.distributed, over MRC: under its own name and in Gloo's place. There one
# of them asks for the name that DDP logs, and MRC's is never "gloo".
SUITE := $(BIN)/python -m pytest -W ignore -p no:xdist --show-capture=no tests/torch/dist_suite.py
AS_MRC := OMP_NUM_THREADS=1 BACKEND=mrc WORLD_SIZE=3
AS_GLOO := OMP_NUM_THREADS=1 BACKEND=gloo OPENMRC_AS=gloo WORLD_SIZE=3
BUT := --deselect tests/torch/dist_suite.py::Suite::test_ddp_logging_data_cpu
torch-suite: torch-suite-mrc torch-suite-gloo
torch-suite-mrc: $(INSTALLED_TORCH)
	$(AS_MRC) $(SUITE)
torch-suite-gloo: $(INSTALLED_TORCH)
	$(AS_GLOO) $(SUITE) $(BUT)

# The newest torch that is admitted, in an environment of its own: what must pass with it as with 2.13.
NEWEST := build/torch-newest
torch-newest: $(INSTALLED)
	$(BIN)/python -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --require-hashes -r requirements-test.lock
	$(NEWEST)/bin/python -m pip install --quiet expecttest -e '.[torch]' --upgrade
	CUDA_VISIBLE_DEVICES= $(NEWEST)/bin/python -m pytest -n 0 tests/torch/test_pipelines.py \
		tests/torch/test_parallel.py tests/torch/test_register.py

# torchft's tests of its process group for Gloo, and accelerate's scripts, over MRC, in an environment of
# its own.
OTHERS := build/torch-others
SCRIPTS := $(addprefix accelerate.test_utils.scripts.,test_ops test_sync test_script)
CHOSEN := NormalGloo or test_gloo_apis or test_gloo_timeout or functional or wrapper or managed or swallowing
torch-others: $(INSTALLED)
	$(BIN)/python -m venv $(OTHERS)
	$(OTHERS)/bin/python -m pip install --quiet --require-hashes -r requirements-test.lock \
		-r requirements-torch.lock
	$(OTHERS)/bin/python -m pip install --quiet torchft==0.2.0 parameterized accelerate==1.15.0
	$(OTHERS)/bin/python -m pip install --quiet --no-deps -e .
	$(OTHERS)/bin/python -m pytest -n 0 -p tests.torch.as_torchft -k '$(CHOSEN)' \
		--pyargs torchft.process_group_test
	for each in tests.torch.as_accelerate $(SCRIPTS); do \
		OMP_NUM_THREADS=1 ACCELERATE_USE_CPU=true OPENMRC_AS=gloo $(OTHERS)/bin/torchrun --standalone \
			--nproc-per-node 2 -m $$each || exit 1; \
	done

# The same in a lab whose planes are cut at random times.
CUT := $(BIN)/python -m tests.torch.cut_suite -- tests/torch/dist_suite.py
torch-suite-cuts: $(INSTALLED_TORCH)
	$(AS_MRC) $(CUT)
	$(AS_GLOO) $(CUT) $(BUT)

# Programs of others, as far as these name them: OCP, SHIM and PERFTEST, NCCL, VERBS; FRR.
# benchmarks/interop.py says what each is.
interop: $(INSTALLED)
	$(BIN)/python benchmarks/interop.py $(if $(OCP),--ocp $(OCP)) $(if $(SHIM),--shim $(SHIM)) \
		$(if $(PERFTEST),--perftest $(PERFTEST)) $(if $(NCCL),--nccl $(NCCL)) \
		$(if $(FRR),--frr $(FRR)) $(if $(VERBS),--verbs $(VERBS))

format: $(INSTALLED_TEST)
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

# The site, in build/site: its sample report and its notebook are runs of this version.
docs: $(INSTALLED_DOCS)
	$(BIN)/mrc run examples/tutorial.toml --out build/sample/sample
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -q -b html -c docs . build/site
	printf '<meta http-equiv="refresh" content="0; url=docs/index.html">\n' > build/site/index.html

# Every command and snippet of the pages, the long ones and those that install too.
docs-long: $(INSTALLED_TEST)
	OPENMRC_DOCS_LONG=1 $(BIN)/python -m pytest -ra tests/test_snippets.py

# The wheel, in dist/, and a first result of it: in an environment of its own, without cache, away from
# the sources. What an earlier build left would be in it, too.
CLEAN := build/clean
wheel:
	rm -rf $(CLEAN) build/lib build/bdist.* dist/openmrc-*.whl
	$(PYTHON) -m venv $(CLEAN)
	$(CLEAN)/bin/python -m pip install --quiet --require-hashes -r requirements.lock
	$(CLEAN)/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(CLEAN)/bin/python -m pip install --quiet dist/openmrc-*.whl
	mkdir $(CLEAN)/elsewhere
	cd $(CLEAN)/elsewhere && export OPENMRC_CACHE=$$PWD/cache && unset PYTHONPATH \
		&& ../bin/openmrc --version && ../bin/mrc init first.toml \
		&& ../bin/mrc run first.toml --out first && test -s first/report.html

# $(1): lock file, $(2): stamps of earlier installations
define install
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r $(1)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@rm -f $(2)
	@touch $@
endef

$(INSTALLED):
	$(call install,requirements.lock,$(VENV)/installed-[0-9]*)

$(INSTALLED_TEST):
	$(call install,requirements-test.lock,$(VENV)/installed-test-*)

TORCH_CPU := https://download.pytorch.org/whl/cpu
$(INSTALLED_TORCH): $(INSTALLED_TEST)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements-torch.lock || { \
		echo "torch without GPUs is on PIP_EXTRA_INDEX_URL=$(TORCH_CPU)" >&2; exit 1; }
	@rm -f $(VENV)/installed-torch-*
	@touch $@

$(INSTALLED_DOCS):
	$(call install,requirements-docs.lock,$(VENV)/installed-docs-*)

# Where there is a wheel of it; pip freeze does not say.
ATHERIS := sys_platform == 'linux' and platform_machine == 'x86_64' and python_version < '3.14'
FREEZE := build/lock/bin/python -m pip freeze --all --exclude pip --exclude openmrc
HASHES := $(PYTHON) .ci/hashes.py

# Newest versions that fit pyproject.toml, all of them pinned, each with the hashes of its files; of
# torch the same version. Review the difference before use.
lock:
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --upgrade setuptools
	build/lock/bin/python -m pip install --quiet .
	$(FREEZE) | $(HASHES) > build/requirements.lock
	build/lock/bin/python -m pip install --quiet .[test]
	$(FREEZE) | sed "s/^atheris==.*/&; $(ATHERIS)/" | $(HASHES) > build/requirements-test.lock
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --upgrade setuptools
	build/lock/bin/python -m pip install --quiet .[docs]
	$(FREEZE) | $(HASHES) > build/requirements-docs.lock
	sed -n 's/^\([a-z].*\) \\$$/\1/p' requirements-torch.lock | $(HASHES) $(TORCH_CPU) \
		> build/requirements-torch.lock
	mv build/requirements*.lock .
	rm -rf build/lock

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
