"""The program `python -m esync.status` with a real state server."""

import json
import subprocess
import sys
from urllib.parse import quote

import pytest
from calling import ROOT, post, report
from django.conf import settings
from faulty_server import FaultyServer, answer

from esync.runtime.errors import ExpectedError
from esync.status.__main__ import main
from esync.status.client import Client
from tests.membership.rendezvous.nodes import running_scheduler
from tests.support import child


def address(url: str) -> str:
    return url.removeprefix("http://")


def test_status_without_job_says_how_to_start_one(url, capsys):
    assert main([address(url)]) == 0
    output = capsys.readouterr().out
    assert f"no job yet at {address(url)}: no worker has reported" in output
    assert f"    ESYNC_STATE_SERVER={address(url)} python train.py …\n" in output
    host, port = address(url).split(":")
    assert f"    python -m esync.worker -m esync -ip {host} -port {port} …\n" in output


def test_status_shows_a_job(url, mine, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    for rank in range(3):
        body = report(rank, device=f"gpu{rank}", accuracy_round=1, metric="perplexity", goal="min")
        assert post(f"{mine}/report", body | ({"accuracy": 31.4159} if rank == 0 else {}))[0] == 200
    assert post(f"{url}/api/v1/jobs/other", {"num_workers": 1})[0] == 200
    assert main(["--job", "mine", address(url)]) == 0
    shown = capsys.readouterr().out
    assert "mine  running, round 1" in shown
    assert "perplexity 31.42 (round 1)" in shown
    assert "other" in shown
    for rank in range(3):
        assert f"gpu{rank}@cloud1" in shown
    assert "the slowest is worker 2: 2.1 s an iteration; waiting costs" in shown
    assert shown.count("computing") >= 3


def test_status_json_prints_jobs_for_programs(url, mine, capsys):
    assert post(f"{url}/api/v1/jobs/other", {"num_workers": 1})[0] == 200
    assert post(f"{url}/api/v1/jobs/other/end", {"reason": "done"})[0] == 200
    assert main(["--json", address(url)]) == 0
    (job,) = json.loads(capsys.readouterr().out)  # the one that is running
    assert (job["name"], len(job["workers"])) == ("mine", 3)
    assert main(["--json", "--job", "other", address(url)]) == 0
    assert json.loads(capsys.readouterr().out)[0]["reason"] == "done"


@pytest.mark.parametrize("body", ["<html>hi</html>", "[]"])
def test_status_client_of_another_kind_of_server_says_so(body):
    with (
        FaultyServer(answer(body)) as server,
        Client(f"127.0.0.1:{server.port}") as client,
        pytest.raises(ExpectedError, match="is not a state server of this version"),
    ):
        client.summaries()


@pytest.mark.parametrize("control", ["\x1b[2J", "\x9b2J", "\u202e", "\x07", "\r"])
def test_server_refuses_terminal_control_characters_and_does_not_print_them(url, mine, control, caplog):
    status, answer, _ = post(f"{mine}/report", report(device=f"gpu0{control}"))
    assert (status, "device" in answer["error"]) == (400, True)
    assert post(f"{mine}/report", {**report(), f"x{control}": 1})[0] == 400
    assert control not in caplog.text
    with pytest.raises(ExpectedError) as refusal:
        Client(address(url))._get(f"runs?limit={quote(control)}")
    assert control not in str(refusal.value)


def test_status_with_error_prints_one_sentence(url, capsys, monkeypatch):
    def error(*words: str) -> str:
        assert main(words) == 1
        (line,) = capsys.readouterr().err.strip().splitlines()
        return line

    assert "no job 'nix'" in error("--job", "nix", address(url))
    assert "no state server answers at 127.0.0.1:1: Connection refused" in error("127.0.0.1:1")
    assert "should be host:port" in error("nonsense")


def test_status_sends_the_token(url, running, capsys, monkeypatch):
    monkeypatch.setattr(settings, "TOKEN", "a-secret-token")
    monkeypatch.delenv("ESYNC_TOKEN", raising=False)
    assert main([address(url)]) == 1
    assert "ESYNC_TOKEN is not set" in capsys.readouterr().err
    monkeypatch.setenv("ESYNC_TOKEN", "a-wrong-token")
    assert main([address(url)]) == 1
    assert "ESYNC_TOKEN is not the one" in capsys.readouterr().err
    monkeypatch.setenv("ESYNC_TOKEN", "a-secret-token")
    assert main([address(url)]) == 0


def test_status_watch_continues_until_interrupted_and_needs_no_mxnet(url, mine):
    without = "import sys; sys.modules['mxnet'] = None; from esync.status.__main__ import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", without, "--watch", address(url)],
        cwd=ROOT, env=child.environment(PYTHONUNBUFFERED="1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        try:
            assert "mine  running" in process.stdout.readline()
            process.send_signal(2)
            _, errors = process.communicate(timeout=20)
            assert (process.returncode, errors) == (0, "")
        finally:
            process.kill()


def test_state_server_and_status_told_names_of_code_do_not_run_it(url, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('executed', 'w').close()\nclass Evil: ...\n")
    job, body = f"{url}/api/v1/jobs/evil", {"num_workers": 1, "epsilon": 0.02}
    post(job, {**body, "mode": "evil.py:Evil", "algorithm": "evil.py:Evil"})
    assert post(job, body)[0] == 200
    assert post(f"{job}/report", report(device="evil.py:Evil", host="evil.py:Evil"))[0] == 200
    assert main([address(url), "--job", "evil"]) == 0
    assert "evil.py:Evil" in capsys.readouterr().out
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("words", [["--json", "--watch"], ["--jo", "x"], ["a:1", "b:2"]])
def test_status_with_bad_usage_exits_with_2(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2


def test_status_says_for_whom_the_cluster_waits(url, mine, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    with running_scheduler(servers=1, workers=2) as (_, port):
        for name, value in {"URI": "127.0.0.1", "PORT": port}.items():
            monkeypatch.setenv(f"DMLC_PS_ROOT_{name}", str(value))
        monkeypatch.setenv("DMLC_NUM_SERVER", "1")
        monkeypatch.setenv("DMLC_NUM_WORKER", "2")
        assert main([address(url)]) == 0
        output = capsys.readouterr().out
    assert output.startswith(
        "the cluster waits for 1 of 1 server and 2 of 2 workers: worker 0, worker 1\nstart what is"
    )
