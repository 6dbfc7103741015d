"""examples/imagenet.py on one device, on small generated records."""

from pathlib import Path

import numpy as np

from ..support.child import environment
from ..support.forked import ForkedProgram

EXAMPLE = Path(__file__).parents[2] / "examples" / "imagenet.py"


def generate(folder: Path) -> None:
    """Files in MXNet's RecordIO format."""
    import esync  # noqa: F401 - before mxnet
    from esync.runtime.mxnet_import import mx

    rng = np.random.default_rng(0)
    for name, count in (("train", 60), ("val", 25)):
        records = mx.recordio.MXIndexedRecordIO(str(folder / f"{name}.idx"), str(folder / f"{name}.rec"), "w")
        for place in range(count):
            label = place % 4
            image = rng.integers(0, 60, (40, 48, 3)).astype(np.uint8) + np.uint8(45 * label)
            header = mx.recordio.IRHeader(0, float(label), place, 0)
            records.write_idx(place, mx.recordio.pack_img(header, image, quality=90, img_fmt=".jpg"))
        records.close()


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the example to its end; its exit code and output."""
    command = [str(EXAMPLE), "--no-distributed", "--data", str(folder), *arguments]
    code = ForkedProgram(command, environment(OMP_NUM_THREADS="1"), folder / "log").wait(120)
    return code, (folder / "log").read_text()


def test_imagenet_example_trains_alone_on_generated_records(tmp_path: Path) -> None:
    generate(tmp_path)
    flags = ["--model", "mobilenet0.25", "--size", "32", "--classes", "4", "--batch-size", "8", "--epochs", "2"]
    code, output = run(tmp_path, "--lr", "0.01", "--threads", "1", *flags)
    assert code == 0, output
    assert "test accuracy " in output
