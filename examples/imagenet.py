"""ImageNet with dual-way gradient sparsification: images in RecordIO files, read with DALI where it is installed.

The same script on every machine: rank 0 serves, the others train.

    python examples/imagenet.py --rank 0 --world-size 5 --master 10.1.1.34
    python examples/imagenet.py --rank 1 --world-size 5 --master 10.1.1.34 --data /data/imagenet

--data is a folder with train.rec, train.idx, val.rec and val.idx, which MXNet's tools/im2rec.py makes. Learning rate,
momentum and schedule are the published ones for up to 4 workers; with 16 the paper takes a momentum of 0.45.
"""

import argparse
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from esync import mx
from esync.runtime.errors import ExpectedError
from esync.runtime.files import expanded

if __package__:  # python -m esync.examples.imagenet
    from .dgs_training import Task, parser, run
else:
    from dgs_training import Task, parser, run

MEAN, SPREAD = (123.68, 116.779, 103.939), (58.393, 57.12, 57.375)


def files(folder: Path, part: str) -> tuple[Path, Path]:
    """The records, and their index.

    Raises:
        ExpectedError: one of them is missing.
    """
    found = folder / f"{part}.rec", folder / f"{part}.idx"
    for file in found:
        if not file.is_file():
            raise ExpectedError(f"--data {folder}: there is no {file.name}; MXNet's tools/im2rec.py makes it")
    return found


def count(index: Path) -> int:
    """Records in a file, by its index."""
    with index.open(encoding="ascii") as lines:
        return sum(1 for _ in lines)


def record_iterator(
    args: argparse.Namespace, part: str, rank: int, workers: int, training: bool
) -> Iterator[tuple[Any, Any]]:
    """One epoch of a worker's share: MXNet's own reader, which decodes in threads."""
    records, index = files(args.data, part)
    augmented = {"random_resized_crop": True, "min_random_area": 0.08, "rand_mirror": True, "shuffle": True}
    iterator = mx.io.ImageRecordIter(
        path_imgrec=str(records),
        path_imgidx=str(index),
        data_shape=(3, args.size, args.size),
        batch_size=args.batch_size,
        num_parts=workers,
        part_index=rank,
        resize=-1 if training else args.size * 8 // 7,
        preprocess_threads=args.threads,
        round_batch=training,
        seed=args.seed,
        mean_r=MEAN[0], mean_g=MEAN[1], mean_b=MEAN[2], std_r=SPREAD[0], std_g=SPREAD[1], std_b=SPREAD[2],
        **(augmented if training else {}),
    )  # fmt: skip
    for batch in iterator:
        whole = args.batch_size if training else args.batch_size - batch.pad  # what a last one lacks is of no harm
        # They are pinned, where the network's weights are not.
        yield batch.data[0][:whole].as_in_context(mx.cpu()), batch.label[0][:whole].as_in_context(mx.cpu())


def dali_iterator(
    args: argparse.Namespace, part: str, rank: int, workers: int, training: bool
) -> Iterator[tuple[Any, Any]]:
    """The same with NVIDIA's DALI, which decodes on the GPU."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.mxnet import DALIClassificationIterator

    records, index = files(args.data, part)

    @pipeline_def(batch_size=args.batch_size, num_threads=args.threads, device_id=0, seed=args.seed)
    def pipeline() -> Any:
        encoded, labels = fn.readers.mxnet(
            path=[str(records)],
            index_path=[str(index)],
            shard_id=rank,
            num_shards=workers,
            random_shuffle=training,
            name="records",
        )
        images = fn.decoders.image(encoded, device="mixed", output_type=types.RGB)
        if training:
            images = fn.random_resized_crop(images, size=args.size)
        else:
            images = fn.resize(images, resize_shorter=args.size * 8 // 7)
        mirror = fn.random.coin_flip() if training else 0
        images = fn.crop_mirror_normalize(
            images, crop=(args.size, args.size), mean=list(MEAN), std=list(SPREAD), mirror=mirror
        )
        return images, labels

    for batches in DALIClassificationIterator(pipeline(), reader_name="records"):
        batch = batches[0]
        whole = args.batch_size if training else args.batch_size - batch.pad  # what a last one lacks is of no harm
        yield batch.data[0][:whole].as_in_context(mx.cpu()), batch.label[0][:whole].reshape(-1).as_in_context(mx.cpu())


def imagenet(args: argparse.Namespace) -> Task:
    """The data set, cut among the workers."""
    dali = mx.context.num_gpus() and importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.dali")
    epoch = dali_iterator if dali else record_iterator

    def batches(rank: int, workers: int) -> Iterator[tuple[Any, Any]]:
        while True:
            yield from epoch(args, "train", rank, workers, True)

    def accuracy(net: Any) -> float:
        metric = mx.metric.Accuracy()
        for images, labels in epoch(args, "val", 0, 1, False):
            metric.update([labels], [net(images)])
        return float(metric.get()[1])

    files(args.data, "val")
    _, index = files(args.data, "train")
    return Task(args.classes, count(index), (3, args.size, args.size), batches, accuracy, drops=(1 / 3, 2 / 3))


def main() -> int:
    """Serve, or train."""
    flags = parser("ImageNet with dual-way gradient sparsification.", 90, 256, 0.7, 1e-4)
    add = flags.add_argument
    add("--data", type=expanded, default=Path("data/imagenet"), help="folder of the records (default: %(default)s)")
    add("--classes", type=int, default=1000, help="(default: %(default)s)")
    add("--size", type=int, default=224, help="pixels of an image's side (default: %(default)s)")
    add("--threads", type=int, default=4, help="that decode images (default: %(default)s)")
    return run(flags.parse_args(), imagenet)


if __name__ == "__main__":
    sys.exit(main())
