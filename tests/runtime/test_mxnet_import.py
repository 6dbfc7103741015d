import pytest

from ..support import child

BLOCKED = "import sys\nsys.modules['mxnet'] = None\n"
ADVICE = "MXNet is not installed: install this package with one of its extras, for instance pip install 'esync[cpu]'"


def test_program_without_mxnet_exits_with_1_and_one_sentence():
    program = BLOCKED + (
        "from esync.runtime import program\n"
        "import esync; print(esync.__version__)\n"  # which needs no MXNet
        "def body(watchdog):\n"
        "    esync.Trainer\n"
        "program.exit_now(program.run('worker', body))\n"
    )
    result = child.run("-c", program)
    assert result.returncode == 1
    assert result.stdout.strip()
    assert result.stderr.startswith(f"worker: error: {ADVICE}")
    assert len(result.stderr.splitlines()) == 1
    assert all(extra in result.stderr for extra in ("cpu", "cu101", "cu112", "cu117"))


def test_import_error_inside_mxnet_is_not_reported_as_missing_mxnet(tmp_path):
    broken = tmp_path / "mxnet"
    broken.mkdir()
    (broken / "__init__.py").write_text("import a_module_that_is_not_there\n")
    result = child.run("-c", "import esync.runtime.mxnet_import", PYTHONPATH=str(tmp_path))
    assert result.returncode != 0
    assert "a_module_that_is_not_there" in result.stderr
    assert "extras" not in result.stderr


@pytest.mark.parametrize("role", ["server", "scheduler"])
def test_mxnet_import_returns_in_every_role(role):
    """MXNet's own import would run the loop of a server or scheduler; the variable is restored
    after it.
    """
    program = "import os\nfrom esync.runtime.mxnet_import import mx\nprint(mx.__version__, os.environ['DMLC_ROLE'])"
    result = child.run("-c", program, DMLC_ROLE=role)
    assert result.stdout == f"1.9.1 {role}\n"


@pytest.mark.parametrize("role", ["server", "scheduler"])
def test_import_that_would_become_a_stock_role_is_refused(role):
    result = child.run("-c", "import esync, mxnet", DMLC_ROLE=role)
    assert result.returncode == 1
    assert f"StockRoleError: DMLC_ROLE is {role!r}, and MXNet would run its own {role} in this" in result.stderr
    assert f"start python -m esync.{role}" in result.stderr


def test_mxnet_import_sets_no_role_and_defers_imports_of_quantization():
    program = (
        "import os, sys\n"
        "from esync.runtime.mxnet_import import mx\n"
        "print('DMLC_ROLE' in os.environ, 'scipy.stats' in sys.modules)\n"
        "print(round(mx.contrib.quantization.stats.entropy([0.5, 0.5]), 3))\n"
        "import scipy.stats\n"
        "print(scipy.stats.norm.cdf(0), type(scipy.stats).__name__)\n"
    )
    result = child.run("-c", program)
    assert result.stdout.split() == ["False", "False", "0.693", "0.5", "module"], result.stderr
    result = child.run(
        "-c",
        "import scipy.stats as before\nfrom esync.runtime.mxnet_import import mx\nprint(mx.test_utils.ss is before)",
    )
    assert result.stdout.strip() == "True", result.stderr


def test_mxnet_without_docstrings_is_imported():
    result = child.run("-c", "from esync import mx; print(mx.nd.ones(3).sum().asscalar())", PYTHONOPTIMIZE="2")
    assert (result.returncode, result.stdout) == (0, "3.0\n"), result.stderr
