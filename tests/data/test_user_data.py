"""Data sets of a user's own: what they are read as, and every way in which they can be wrong."""

import logging
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from user_datasets import CLASSES, SIZE, encoded, pixels, record, save, write_folder, write_rec

from esync.data import Batches, DataError, check_name, load, locate, user_arrays
from esync.data.__main__ import main
from esync.data.user_data import short_dataset_name
from esync.runtime.user_code import UserCodeError


def refused(name: str, data_dir: Path | None = None) -> str:
    with pytest.raises((DataError, UserCodeError)) as caught:
        load(name, data_dir)
    return str(caught.value)


# --- npz ------------------------------------------------------------------------------------------

X = np.random.default_rng(0).integers(0, 256, (30, 8, 9, 3)).astype(np.uint8)
Y = np.arange(30) % 3


def write_npz(folder: Path, **arrays: np.ndarray) -> str:
    all_arrays = {"x_train": X, "y_train": Y, "x_test": X[:6], "y_test": Y[:6], **arrays}
    np.savez(folder / "d.npz", **{name: array for name, array in all_arrays.items() if array is not None})
    return f"npz:{folder / 'd.npz'}"


@pytest.mark.parametrize("labels", [Y, Y[:, np.newaxis], Y.astype(np.uint8)])
def test_npz_with_channels_last_is_read_as_channels_first(tmp_path, labels):
    data = load(write_npz(tmp_path, y_train=labels))
    assert (data.name, data.classes, data.shape, data.class_names) == ("npz:d.npz", 3, (3, 8, 9), ())
    np.testing.assert_array_equal(data.train_images, X.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(data.train_labels, Y)
    assert data.test_images.shape == (6, 3, 8, 9)
    assert not any(array.flags.writeable for array in (data.train_images, data.test_labels))


@pytest.mark.parametrize(
    ("samples", "shape", "dtype"),
    [
        (X.transpose(0, 3, 1, 2), (3, 8, 9), np.uint8),
        (X[..., :1], (1, 8, 9), np.uint8),
        ((X / 255).astype(np.float16), (3, 8, 9), np.float32),
        (X[..., 0] / 255, (1, 8, 9), np.float32),
        (X[:, 0, :, 0].astype(np.float32), (9,), np.float32),
        (np.zeros((30, 5, 6, 7, 8), np.float32), (5, 6, 7, 8), np.float32),
    ],
)
def test_samples_of_every_kind_reach_the_batches(tmp_path, samples, shape, dtype):
    data = load(write_npz(tmp_path, x_train=samples, x_test=samples[:6]))
    assert (data.shape, data.train_images.dtype) == (shape, dtype)
    images, labels = next(Batches(data.train_images, data.train_labels, np.arange(30), 4, seed=0))
    assert images.shape == (4, *shape)
    assert images.dtype == labels.dtype == np.float32
    assert images.max() <= (255 if shape == (9,) else 1)


def test_npz_with_other_array_names_is_read_the_same(tmp_path):
    np.savez_compressed(tmp_path / "d.npz", train_images=X, train_labels=Y, test_images=X[:6], test_labels=Y[:6])
    assert load("npz:d.npz", tmp_path).digest == load(write_npz(tmp_path)).digest


def test_digest_of_changed_arrays_differs(tmp_path):
    one, same = load(write_npz(tmp_path)).digest, load(write_npz(tmp_path)).digest
    assert one == same
    assert len(one) == 12
    assert load(write_npz(tmp_path, y_test=(Y[:6] + 1) % 3)).digest != one
    changed = X.copy()
    changed[7, 3, 3, 0] += 1
    assert load(write_npz(tmp_path, x_train=changed)).digest != one


def test_npz_without_test_set_sets_every_tenth_sample_of_a_class_aside(tmp_path):
    labels = np.array([0] * 25 + [1] * 3 + [2] * 2)
    data = load(write_npz(tmp_path, y_train=labels, x_test=None, y_test=None))
    aside = [9, 19, 27, 29]
    np.testing.assert_array_equal(data.test_images, X[aside].transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(data.train_labels, np.delete(labels, aside))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_test": None}, "d.npz: has no array x_test, but x_train, y_train, y_test; expected x_train, y_train"),
        ({"x_train": X.astype(np.int64)}, "d.npz, training: samples of type int64; expected uint8 images"),
        ({"x_train": X.astype(object)}, "d.npz (array x_train): cannot be read: Object arrays"),
        ({"x_train": X[:0], "y_train": Y[:0]}, "training: samples of shape (0, 8, 9, 3); expected one or more"),
        (
            {"x_train": np.zeros((30, 3, 8, 3), np.uint8)},
            "in which the first or the last axis can be that of the colours",
        ),
        ({"x_train": np.where(X > 250, np.nan, X)}, "training: samples with values that are NaN or infinite"),
        ({"y_train": Y[:-1]}, "training: 29 labels; expected 30, one for each sample"),
        ({"y_train": Y / 1}, "training: labels of type float64 and shape (30,); expected whole numbers"),
        ({"y_train": np.eye(3, dtype=int)[Y]}, "training: labels of type int64 and shape (30, 3); expected"),
        ({"y_train": Y - 1}, "training: label -1; expected 0, 1, …"),
        (
            {"y_train": Y + 1},
            "no training sample has the label 0; expected each of the labels 0 to 3 to occur in the training set, "
            "which every worker reads whole",
        ),
        ({"y_test": Y[:6] + 1}, "no training sample has the label 3"),
        ({"y_train": Y * 0, "y_test": Y[:6] * 0}, "one class only; expected two or more"),
        ({"y_train": np.where(Y + np.arange(30) == 0, 0, 1), "x_test": None, "y_test": None}, "label 0 has one sample"),
        ({"x_test": X[:6, :7]}, "test: samples of shape (3, 7, 9); expected (3, 8, 9), as those of the training set"),
        ({"x_test": X[:6] / 255}, "test: samples of type float32; expected uint8, as training"),
    ],
)
def test_npz_with_unusable_arrays_is_refused(tmp_path, arrays, message):
    error = refused(write_npz(tmp_path, **arrays))
    assert error.startswith(str(tmp_path / "d.npz"))
    assert message in error


def test_npz_that_is_truncated_is_refused(tmp_path):
    name, path = write_npz(tmp_path), tmp_path / "d.npz"
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    assert "no npz file" in refused(name)
    path.write_bytes(content[:2000] + bytes(100) + content[2100:])
    assert "d.npz (array x_train): cannot be read: Bad CRC-32" in refused(name)
    np.save(tmp_path / "d.npz.npy", X)
    assert "no npz file" in refused(f"npz:{tmp_path / 'd.npz.npy'}")
    with pytest.raises(DataError, match="no such file"):
        locate("npz:nothing.npz", tmp_path)


@pytest.mark.parametrize("kind", ["npz", "folder", "rec"])
def test_data_larger_than_memory_are_refused_with_sizes(tmp_path, monkeypatch, kind):
    write_npz(tmp_path)
    write_folder(tmp_path / "d")
    write_rec(tmp_path / "d.rec")
    monkeypatch.setattr(user_arrays, "available_memory", lambda: 1000.0)
    error = refused({"npz": "npz:d.npz", "folder": "folder:d", "rec": "rec:d"}[kind], tmp_path)
    assert "would take" in error
    assert "GB of memory, and 1e-06 GB are free" in error
    assert str(tmp_path / "d") in error


# --- folder ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", ["test", "val"])
def test_folder_of_images_is_read_by_classes(tmp_path, test):
    write_folder(tmp_path / "pets")
    (tmp_path / "pets" / "test").rename(tmp_path / "pets" / test)
    data = load("folder:pets", tmp_path)
    assert (data.name, data.classes, data.shape, data.class_names) == ("folder:pets", 3, (3, *SIZE), CLASSES)
    np.testing.assert_array_equal(data.train_labels, np.repeat([0, 1, 2], 6))
    np.testing.assert_array_equal(data.test_labels, np.repeat([0, 1, 2], 2))
    np.testing.assert_array_equal(data.train_images[7], pixels(1, 1).transpose(2, 0, 1))
    np.testing.assert_array_equal(data.test_images[5], pixels(2, 1001).transpose(2, 0, 1))


def test_folder_without_test_set_is_split(tmp_path):
    write_folder(tmp_path, train=12, test=0)
    data = load(f"folder:{tmp_path}")
    assert (len(data.train_labels), len(data.test_labels)) == (33, 3)
    np.testing.assert_array_equal(data.test_images[1], pixels(1, 9).transpose(2, 0, 1))


def test_folder_of_grey_images_stays_grey_unless_one_has_colours(tmp_path):
    for path in write_folder(tmp_path).rglob("*.png"):
        Image.open(path).convert("L").save(path)
    data = load(f"folder:{tmp_path}")
    assert (data.shape, data.train_images.shape) == ((1, *SIZE), (18, *SIZE))
    grey = data.train_images.copy()
    save(tmp_path / "train" / "dog" / "005.png", pixels(1, 5))
    data = load(f"folder:{tmp_path}")
    assert data.shape == (3, *SIZE)
    np.testing.assert_array_equal(data.train_images[:11], np.repeat(grey[:11, np.newaxis], 3, axis=1))
    np.testing.assert_array_equal(data.train_images[11], pixels(1, 5).transpose(2, 0, 1))
    Image.open(tmp_path / "train" / "dog" / "005.png").convert("L").save(tmp_path / "train" / "dog" / "005.png")
    save(tmp_path / "test" / "owl" / "001.png", pixels(1, 5))
    error = refused(f"folder:{tmp_path}")
    assert f"{tmp_path}/test/owl/001.png: an image with colours; expected a grey one" in error


def test_folder_with_files_that_are_no_images_warns_and_leaves_them_out(tmp_path, caplog):
    write_folder(tmp_path)
    before = load(f"folder:{tmp_path}").digest
    assert not caplog.text
    (tmp_path / "train" / "cat" / "notes.txt").write_text("")
    (tmp_path / "train" / "cat" / ".hidden.png").write_text("")
    with caplog.at_level(logging.WARNING):
        assert load(f"folder:{tmp_path}").digest == before
    assert "left out: 1, " in caplog.text
    assert "notes.txt" in caplog.text


def spoil_folder(folder: Path, how: str) -> None:
    image = folder / "train" / "dog" / "003.png"
    match how:
        case "truncated":
            image.write_bytes(image.read_bytes()[:-60])
        case "text":
            image.write_text("not an image")
        case "size":
            save(image, pixels(1, 3, (12, 16)))
        case "deep":
            Image.fromarray(np.zeros(SIZE, np.uint16)).save(image)
        case "empty class":
            for path in (folder / "train" / "dog").iterdir():
                path.unlink()
        case "other class":
            (folder / "test" / "dog").rename(folder / "test" / "doge")
        case "nested":
            image.unlink()
            save(image / "deeper.png", pixels(1, 3))
        case "no classes":
            (folder / "train").rename(folder / "gone")
            (folder / "train").mkdir()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated", "train/dog/003.png: no image that can be read ("),
        ("text", "train/dog/003.png: no image that can be read (cannot identify image file"),
        ("size", "train/dog/003.png: an image of 16 × 12 pixels; expected 17 × 12, as "),
        ("deep", "train/dog/003.png: an image of Pillow's mode I;16; expected 8 bits a channel"),
        ("empty class", "train/dog: no image in the folder of a class; expected files .bmp"),
        ("other class", "test/doge: a class that has no folder in the training set; expected cat, dog, owl"),
        ("nested", "train/dog/003.png: a folder in the folder of a class; expected DIR/train/CLASS/IMAGE"),
        ("no classes", "train: no folders of classes; expected DIR/train/CLASS/IMAGE"),
    ],
)
def test_folder_that_cannot_be_used_is_refused(tmp_path, how, message, monkeypatch):
    monkeypatch.setattr("PIL.ImageFile.LOAD_TRUNCATED_IMAGES", True)  # as where gluoncv was imported
    spoil_folder(write_folder(tmp_path), how)
    error = refused(f"folder:{tmp_path}")
    assert error.startswith(f"{tmp_path}/")
    assert message in error


def test_folder_that_is_not_there_is_refused(tmp_path):
    (tmp_path / "file").touch()
    assert "gone: no such folder; expected DIR/train/CLASS/IMAGE" in refused("folder:gone", tmp_path)
    assert "file: is a file" in refused("folder:file", tmp_path)


# --- RecordIO -------------------------------------------------------------------------------------


def test_records_that_mxnet_has_written_are_read(tmp_path):
    """With the magic number inside of a record, which MXNet then writes in several parts."""
    from esync.runtime.mxnet_import import mx

    magic = struct.pack("<I", 0xCED7230A)
    images = [pixels(label, number) for number in range(4) for label in range(3)]
    for half in ("train", "val"):
        file = mx.recordio.MXIndexedRecordIO(f"{tmp_path}/pets_{half}.idx", f"{tmp_path}/pets_{half}.rec", "w")
        for number, image in enumerate(images):
            content = encoded(image)
            content += bytes(-len(content) % 4) + magic + b"end" + magic  # behind the end of the PNG file
            header = mx.recordio.IRHeader(0, float(number % 3), number, 0)
            file.write_idx(number, mx.recordio.pack(header, content))
        file.close()
    raw = (tmp_path / "pets_train.rec").read_bytes()
    assert any(word >> 29 for word in struct.unpack_from("<I", raw, 4))  # cut, indeed
    for name in ("rec:pets", "rec:pets.rec", "rec:pets_train.rec"):
        data = load(name, tmp_path)
        assert (data.classes, data.shape) == (3, (3, *SIZE))
        np.testing.assert_array_equal(data.train_labels, np.arange(12) % 3)
        np.testing.assert_array_equal(data.train_images, np.stack(images).transpose(0, 3, 1, 2))
        np.testing.assert_array_equal(data.test_images, data.train_images)


def spoil_rec(path: Path, how: str) -> None:
    content = path.read_bytes()
    match how:
        case "truncated":
            path.write_bytes(content[:-7])
        case "between records":
            path.with_suffix(".idx").write_text("0\t0\n" * 13)
        case "header":
            path.write_bytes(content + b"\x0a\x23")
        case "one file":
            path.rename(path.with_name("e.rec"))
        case "other":
            path.write_bytes(b"PK" + content)
        case "empty":
            path.write_bytes(b"")
        case "short":
            path.write_bytes(content + record(b"abc"))
        case "1.5" | "nan":
            write_rec(path, label=float(how))
        case "labels":
            path.write_bytes(record(struct.pack("<IfQQ", 2, 0.0, 0, 0) + bytes(8) + encoded(pixels(0, 0))))
        case "image":
            path.write_bytes(content + record(struct.pack("<IfQQ", 0, 0.0, 0, 0) + encoded(pixels(0, 0))[:-60]))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated", "d.rec: truncated in the record at byte "),
        ("between records", "d.rec: 12 records; expected 13, as many as lines of d.idx"),
        ("header", "d.rec: no record begins at byte "),
        ("other", "d.rec: no record begins at byte 0"),
        ("empty", "d.rec: no records; expected one or more"),
        ("short", "d.rec, record 12: 3 bytes; expected a header of 24 bytes and an image"),
        ("1.5", "d.rec, record 0: label 1.5; expected 0, 1, …"),
        ("nan", "d.rec, record 0: label nan; expected 0, 1, …"),
        ("one file", "/d: no such RecordIO file; expected NAME_train.rec and NAME_test.rec"),
        ("labels", "d.rec, record 0: 2 labels; expected one label"),
        ("image", "d.rec, record 12: no image that can be read ("),
    ],
)
def test_records_that_cannot_be_used_are_refused(tmp_path, how, message):
    spoil_rec(write_rec(tmp_path / "d.rec"), how)
    assert message in refused("rec:d", tmp_path)


# --- functions ------------------------------------------------------------------------------------

FUNCTIONS = """
import numpy as np
X, Y = np.arange(240, dtype=np.float32).reshape(30, 8), np.arange(30) % 3
def arrays(): return (X, Y), (X[:6], Y[:6])
def lists(): return [X.tolist(), Y.tolist()], None
def gluon():
    import mxnet as mx
    data = mx.gluon.data.ArrayDataset(mx.nd.array(X), mx.nd.array(Y))
    return data.take(24), data.take(6)
def nothing(): pass
def four(): return X, Y, X, Y
def half(): return (X, Y), 3
def fails(): raise ValueError("boom")
def asks(folder): pass
class Odd:
    def __init__(self, item): self.item = item
    def __len__(self): return 30
    def __getitem__(self, place): return self.item(place)
def shapes(): return Odd(lambda place: (X[place][:8 - place // 9], Y[place])), None
def items(): return Odd(lambda place: X[place]), None
def labels(): return Odd(lambda place: (X[place], 0.5)), None
def texts(): return Odd(lambda place: (X[place], "cat")), None
def breaks(): return Odd(lambda place: (X[place], 1 // (place - 7))), None
def objects(): return ([object()], [1]), None
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_functions.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    return f"{tmp_path}/own_functions.py"


@pytest.mark.parametrize(("name", "train", "test"), [("arrays", 30, 6), ("lists", 27, 3), ("gluon", 24, 6)])
def test_function_that_returns_arrays_lists_or_gluon_data_is_read(functions, name, train, test):
    data = load(f"{functions}:{name}")
    assert (data.name, data.classes, data.shape) == (f"own_functions.{name}", 3, (8,))
    assert (len(data.train_labels), len(data.test_labels)) == (train, test)
    assert data.train_images[1].tolist() == list(range(8, 16))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "nothing: has returned nothing; expected (train, test), each a pair (samples, labels)"),
        ("half", "half, test: an object of class int; expected (train, test)"),
        ("fails", "fails has failed: own_functions.py, line 13: ValueError: boom"),
        ("asks", "asks for the argument folder, but is given none"),
        ("shapes", "train, sample 9: shape (7,) and type float32; expected (8,) and float32, as the first one"),
        ("items", "train, sample 0: an object of class ndarray; expected a pair: sample and label"),
        ("four", "has returned an object of class tuple of length 4; expected (train, test)"),
        ("labels", "train, sample 0: label 0.5; expected 0, 1, …"),
        ("texts", "train, sample 0: label cat; expected 0, 1, …"),
        ("breaks", "train, sample 7 cannot be read: own_functions.py, line 23: ZeroDivisionError"),
        ("objects", "train: an object of class list of length 1; expected an array of numbers"),
    ],
)
def test_function_that_cannot_be_used_is_refused(functions, name, message):
    assert message in refused(f"{functions}:{name}")


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fashion-mnits", "unknown data set 'fashion-mnits' (did you mean 'fashion-mnist'?); known: fashion-mnist"),
        ("pets", "unknown data set 'pets' (did you mean folder:pets?)"),
        ("d.npz", "(did you mean npz:d.npz?)"),
        ("own.py", "which is a file: name a function in it, own.py:FUNCTION"),
        ("folder:", "'folder:' names no folder; expected npz:FILE, folder:DIR"),
        ("npz:", "'npz:' names no file"),
        ("own.py:data", "own.py is not there"),
    ],
)
def test_check_name_of_no_data_set_is_refused(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pets").mkdir()
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - what argparse tells
        check_name(text)
    assert message in str(caught.value)


def test_short_dataset_name_leaves_out_folders():
    names = ["folder:/data/pets/", "npz:a/d.npz", "rec:pets_train.rec", "my/own.py:data", "cifar-10"]
    short = ["folder:pets", "npz:d.npz", "rec:pets_train.rec", "own.data", "cifar-10"]
    assert [short_dataset_name(name) for name in names] == short


def test_check_command_describes_the_data_or_names_the_fault(tmp_path, capsys):
    write_folder(tmp_path / "pets")
    assert main(["check", "folder:pets", "--data-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "folder:pets: 18 training and 6 test samples of 3 classes" in out
    assert "3 × 12 × 17; uint8, 0 to 255" in out
    assert "label 1 dog: 6 training, 2 test" in out
    spoil_folder(tmp_path / "pets", "truncated")
    assert main(["check", "folder:pets", "-dd", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}/pets/train/dog/003.png: no image")
