"""Reads event files with TensorBoard's own reader."""

from pathlib import Path


def scalars(folder: Path) -> dict[str, list[tuple[int, float, float]]]:
    """Return the scalars in a folder: tag → (step, value, wall time)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return {
        tag: [(event.step, event.value, event.wall_time) for event in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }
