"""Descriptions of clusters with known answers."""

from pathlib import Path

HEAD = """
scheduler: {{host: centre}}
servers: [{{host: centre}}]
state_server: {{host: centre}}
network: {{bandwidth: {bandwidth}, latency: {latency}}}
simulate: {{model_bytes: {model_bytes}}}
train: {{mode: esync, batch_size: 10, max_time: 5, {train}}}
workers:
"""


def write(
    folder: Path,
    *step_times: float,
    bandwidth: str = "10Gbit",
    latency: str = "0.1ms",
    model_bytes: str = "4MB",
    train: str = "",
    on_one_host: int = 1,
) -> Path:
    """Write the description of a cluster with so many workers on each of the hosts w0, w1 …"""
    lines = [
        f"  - {{host: w{rank // on_one_host}, device: cpu, simulate: {{step_time: {seconds}}}}}"
        for rank, seconds in enumerate(step_times)
    ]
    path = folder / "cluster.yaml"
    head = HEAD.format(bandwidth=bandwidth, latency=latency, model_bytes=model_bytes, train=train)
    path.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    return path
