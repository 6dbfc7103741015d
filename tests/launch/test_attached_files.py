"""Files of a job are added to its own run, not to an earlier one whose run.json is still there."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from esync.launch import report
from esync.launch.outcome import JobOutcome


def test_job_that_has_not_begun_leaves_the_earlier_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attached: list[Any] = []

    def attach(references: Any, *_: Any) -> list[str]:
        attached.append(references)
        return []

    monkeypatch.setattr(report, "attach", attach)
    folder = tmp_path / "host/cpu"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"loggers": {"mlflow": {"id": "1"}}, "started": 1}))
    plan: Any = SimpleNamespace(folder_here=tmp_path)
    before = report.logged_before(plan)
    assert report.attach_files(plan, tmp_path / "job.yaml", JobOutcome(), before) == []
    assert attached == []
    (folder / "run.json").write_text(json.dumps({"loggers": {"mlflow": {"id": "1"}}, "started": 2}))
    report.attach_files(plan, tmp_path / "job.yaml", JobOutcome(), before)
    assert attached == [{"mlflow": {"id": "1"}}]
