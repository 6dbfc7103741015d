"""The files around the package: licence, citation, workflow, forms, container."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from esync import __version__

from .support import child

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "tests.yml"
#: Schema that check-jsonschema brings → the files that it is for.
SCHEMAS = {
    "vendor.citation-file-format": ["CITATION.cff"],
    "vendor.github-workflows": [".github/workflows/tests.yml", ".github/workflows/release.yml"],
    "vendor.compose-spec": ["examples/compose/compose.yaml"],
    "vendor.github-issue-forms": [".github/ISSUE_TEMPLATE/bug.yml", ".github/ISSUE_TEMPLATE/feature.yml"],
    "vendor.github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def program(name: str) -> str:
    """Path of a program of the environment that runs the tests; without it the test is skipped."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        pytest.skip(f"there is no {name} here; the extra dev brings it")
    return str(path)


def python_versions() -> list[str]:
    """The versions of Python that pyproject.toml allows."""
    lowest, first_not = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', read("pyproject.toml")).groups()
    return [f"3.{minor}" for minor in range(int(lowest), int(first_not))]


def test_checkout_has_the_published_files_and_folders_at_the_top():
    folders = ("esync", "SimpleStateServer", "scripts", "logs_tools", "tests")
    assert [name for name in folders if not (ROOT / name).is_dir()] == []
    assert [name for name in ("config.py", "setup.py", "README.md") if not (ROOT / name).is_file()] == []


def test_workflow_runs_what_ci_runs_on_every_python_of_the_package():
    job = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["tests"]
    assert job["strategy"]["matrix"]["python"] == python_versions()
    (step,) = [step for step in job["steps"] if "run" in step]
    assert step["run"] == ".ci/run"
    assert os.access(ROOT / step["run"], os.X_OK)
    assert step["env"]["PYTHON"] == "python"  # the one that is set up, for scripts/setup.sh
    assert "${PYTHON:-" in read("scripts/setup.sh")


@pytest.mark.parametrize(("tag", "code"), [(f"v{__version__}", 0), ("v999.0", 1), (__version__, 1)])
def test_release_refuses_a_tag_that_is_not_the_version(tag, code):
    build = yaml.safe_load(read(".github/workflows/release.yml"))["jobs"]["build"]
    (step,) = [step for step in build["steps"] if "GITHUB_REF_NAME" in step.get("run", "")]
    folder = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "GITHUB_REF_NAME": tag}
    result = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=ROOT, env=folder, capture_output=True, text=True)
    assert result.returncode == code
    assert code == 0 or f"should be v{__version__}, as esync/version.py says" in result.stderr


def test_release_publishes_only_what_has_been_checked():
    jobs = yaml.safe_load(read(".github/workflows/release.yml"))["jobs"]
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}  # trusted publishing, without a password
    steps = [step.get("run", "") for step in jobs["build"]["steps"]]
    (checked,) = [step for step in steps if "python -m build" in step]
    assert "twine check --strict" in checked


def test_classifiers_name_every_python_of_the_package():
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', read("pyproject.toml"))
    assert named == python_versions()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_fit_their_schema(schema):
    command = [program("check-jsonschema"), "--builtin-schema", schema, *(str(ROOT / name) for name in SCHEMAS[schema])]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout


def test_citation_has_the_version_of_the_package_and_three_papers():
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["version"] == __version__
    titles = [reference["title"].partition(":")[0] for reference in citation["references"]]
    assert titles[:2] == ["ESync", "Sync-Switch"]
    assert titles[2].startswith("Dual-Way Gradient Sparsification")


def test_licence_is_named_everywhere():
    assert "Apache License\n                           Version 2.0, January 2004" in read("LICENSE")
    assert 'license = "Apache-2.0"' in read("pyproject.toml")
    assert yaml.safe_load(read("CITATION.cff"))["license"] == "Apache-2.0"


def test_notice_names_the_version_of_what_is_carried_along():
    carried = ROOT / "esync" / "state_server" / "dashboard" / "uplot"
    version = re.search(r"\(v([\d.]+)\)", (carried / "uPlot.iife.min.js").read_text(encoding="utf-8"))[1]
    assert f"uPlot {version} ({carried.relative_to(ROOT)})" in read("NOTICE")


def test_pre_commit_programs_are_those_of_the_environment():
    hooks = [
        hook for repository in yaml.safe_load(read(".pre-commit-config.yaml"))["repos"] for hook in repository["hooks"]
    ]
    entries = [hook["entry"].split() for hook in hooks if hook.get("language") == "system"]
    assert {Path(words[0]).name for words in entries} == {"ruff", "mypy", "python"}
    for first, *arguments in entries:
        assert first.startswith(".venv/bin/")
        assert all((ROOT / word).is_file() for word in arguments if word.endswith(".py"))


@pytest.mark.parametrize(
    "page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", ".github/pull_request_template.md"]
)
def test_links_of_repository_pages_lead_to_files(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", read(page))
    assert not [link for link in links if "://" not in link and not (ROOT / page).parent.joinpath(link).exists()]


def test_dockerfile_passes_the_linter():
    result = subprocess.run([program("hadolint"), str(ROOT / "Dockerfile")], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout


def test_dockerfile_has_no_privileges_and_copies_what_the_wheel_needs():
    text = read("Dockerfile")
    assert text.rindex("\nUSER 1000\n") > text.rindex("\nRUN ")
    admitted = re.findall(r"^!(.*)$", read(".dockerignore"), re.MULTILINE)
    from .test_wheel import FILES, FOLDERS

    assert set(admitted) == {*FILES, *FOLDERS}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_steps_of_the_container_run_in_a_new_environment():
    command = [ROOT / "scripts" / "check_container.sh"]
    environment = child.environment(OMP_NUM_THREADS="1", PYTHON=sys.executable)
    result = subprocess.run(command, capture_output=True, text=True, timeout=1100, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "done: ESync" in result.stdout
