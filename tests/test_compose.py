"""The Compose file, without containers: its form, and its commands as processes of this machine."""

import contextlib
import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import yaml

from esync.runtime.processes import tied

from .data import tiny_dataset
from .support import child
from .support.ports import free_port

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "compose"
TOKEN = "a-secret-of-the-test"
SERVICES = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
#: Services whose commands are this package's, in an order in which they may start.
OURS = ("scheduler", "server", "state-server", "worker-0", "worker-1", "worker-2")


def test_files_that_services_mount_exist():
    mounted = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())]
    files = [name for name in mounted if name.startswith("./")]
    assert len(files) == 4
    assert [name for name in files if not (FOLDER / name).is_file()] == []


def test_grafana_finds_its_dashboard_and_its_source():
    (provider,) = yaml.safe_load((FOLDER / "grafana" / "dashboards.yaml").read_text())["providers"]
    assert f"{provider['options']['path']}/esync.json" in str(SERVICES["grafana"]["volumes"])
    (source,) = yaml.safe_load((FOLDER / "grafana" / "sources.yaml").read_text())["datasources"]
    panels = json.loads((FOLDER / "grafana" / "esync.json").read_text())["panels"]
    assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}


def test_commands_train_and_prometheus_finds_the_metrics_of_the_panels(tmp_path):
    tiny_dataset.write(tmp_path / "data")
    ports = {"9091": str(free_port()), "10010": str(free_port())}
    addresses = {**ports, "scheduler": "127.0.0.1", "state-server": "127.0.0.1"}
    scraped = ""
    with contextlib.ExitStack() as stack:
        processes = {}
        for name in OURS:
            service = SERVICES[name]
            variables = {key: addresses.get(value, value) for key, value in service["environment"].items()}
            variables |= {"ESYNC_TOKEN": TOKEN, "ESYNC_STATE_SERVER": f"127.0.0.1:{ports['10010']}"}
            words = [ports.get(word, word) for word in service["command"]]
            log = stack.enter_context(open(tmp_path / f"{name}.log", "w", encoding="utf-8"))
            command = tied([sys.executable, "-m", "esync", *words])
            environment = child.environment(
                **variables, DMLC_NODE_HOST="127.0.0.1", ESYNC_STATE_DIR=str(tmp_path / "s")
            )
            process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=subprocess.STDOUT)
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes[name] = process
        (target,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"][0]["static_configs"]
        host, port = target["targets"][0].split(":")
        url = f"http://{addresses[host]}:{addresses[port]}/metrics"
        until = time.monotonic() + 150
        while any(processes[name].poll() is None for name in OURS if name.startswith("worker")):
            assert time.monotonic() < until, output(tmp_path)
            with contextlib.suppress(OSError):
                request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
                with urllib.request.urlopen(request, timeout=5) as page:
                    scraped = page.read().decode()
            time.sleep(0.3)
        assert [processes[name].poll() for name in OURS if name.startswith("worker")] == [0, 0, 0], output(tmp_path)
    assert all(list(tmp_path.glob(f"logs/worker-{number}/iter-*.txt")) for number in range(3))
    panels = json.loads((FOLDER / "grafana" / "esync.json").read_text())["panels"]
    metrics = set(re.findall(r"esync_\w+", " ".join(target["expr"] for panel in panels for target in panel["targets"])))
    assert len(metrics) >= 6
    assert [metric for metric in metrics if metric not in scraped] == []


def output(folder: Path) -> str:
    """What the processes have printed."""
    return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')}" for path in sorted(folder.glob("*.log")))
