import argparse

import pytest

from esync import config
from esync.arguments import read
from esync.arguments.environment import environment_of
from esync.arguments.mode import choose_algorithm
from esync.arguments.presets import PRESETS
from esync.launch.flags import merge, understood

#: What `--flag value` gives when nothing is typed: name → where its default comes from.
DEFAULTS = {
    "mode": config.MODE,
    "network": config.NETWORK,
    "batch_size": config.BATCH_SIZE,
    "seed": config.SEED,
    "optimizer": config.OPTIMIZER,
    "weight_decay": config.WEIGHT_DECAY,
    "learning_rate": config.LEARNING_RATE,
    "local_lr": config.LEARNING_RATE_LOCAL,
    "dataset": config.DATASET,
    "partition": config.PARTITION,
    "cpu": config.USE_CPU,
    "eval_duration": config.EVAL_DURATION,
    "log_dir": config.LOG_DIR,
    "state_server_ip": config.STATE_SERVER_IP,
    "state_server_port": int(config.STATE_SERVER_PORT),
    "job": config.JOB,
    "start_timeout": config.START_TIMEOUT,
    "round_timeout": config.ROUND_TIMEOUT,
    "use_dcasgd": 0,
    "split_by_class": 0,
    "data_dir": None,
    "gpu": None,
    "preset": None,
    "step_time": None,
    "rounds": None,
    "epochs": None,
    "max_time": None,
    "target_accuracy": None,
    "checkpoint_dir": None,
    "checkpoint_every": config.CHECKPOINT_EVERY,
    "keep_checkpoints": config.KEEP_CHECKPOINTS,
    "resume": False,
    "no_export": False,
    "no_hybridize": False,
    "no_evaluation": False,
    "overwrite": False,
    "quiet": False,
}

#: Those of some modes only.
OWN_DEFAULTS = {
    "esync": {
        "global_lr": config.LEARNING_RATE_GLOBAL,
        "epsilon": config.EPSILON,
        "slowest_iterations": config.SLOWEST_ITERATIONS,
        "query_mode": config.QUERY_MODE,
        "local_iterations": None,
        "compression": config.COMPRESSION,
    },
    "sync": {"compression": config.COMPRESSION},
    "dcasgd": {"dcasgd_lambda": config.DCASGD_LAMBDA, "dcasgd_adaptive": False, "dcasgd_lambda_on": "mean"},
    "dgs": {
        "sparse_ratio": config.SPARSE_RATIO,
        "secondary_ratio": config.SPARSE_SECONDARY_RATIO,
        "sparse_values": config.SPARSE_VALUES,
        "sparse_dense_below": config.SPARSE_DENSE_BELOW,
    },
    "dgc-async": {"sparse_ratio": config.SPARSE_RATIO, "dgc_clip": config.DGC_CLIP, "dgc_warm_up": config.DGC_WARM_UP},
    "ssp": {"staleness": config.STALENESS, "statistics": config.STATISTICS},
    "local": {},
}

#: The contract: published short and long names, a value in text, and what it becomes; in the mode
#: where it makes sense.
PUBLISHED = [
    ("-l", "--learning-rate", "0.5", 0.5, "sync"),
    ("-ll", "--local-lr", "0.5", 0.5, "esync"),
    ("-gl", "--global-lr", "0.5", 0.5, "esync"),
    ("-b", "--batch-size", "32", 32, "esync"),
    ("-dd", "--data-dir", "/data", "/data", "esync"),
    ("-g", "--gpu", "3", 3, "esync"),
    ("-c", "--cpu", "1", 1, "esync"),
    ("-n", "--network", "alexnet", "alexnet", "esync"),
    ("-ld", "--log-dir", "elsewhere", "elsewhere", "esync"),
    ("-e", "--eval-duration", "5", 5, "esync"),
    ("-m", "--mode", "local", "local", "local"),
    ("-dcasgd", "--use-dcasgd", "1", 1, "async"),
    ("-s", "--split-by-class", "1", 1, "esync"),
    ("-ip", "--state-server-ip", "10.1.1.34", "10.1.1.34", "esync"),
    ("-port", "--state-server-port", "10011", 10011, "esync"),
]


def options(*arguments: str) -> argparse.Namespace:
    return read("python -m esync.worker", "Train.", arguments)


def test_published_names_of_networks_are_understood():
    names = ["alexnet", "resnet50-v1", "resnet50-v2", "mobilenet-v1", "mobilenet-v2", "inception-v3"]
    assert [options("-n", name, "--job", "mine").network for name in names] == names


def refused(capsys, *arguments: str) -> str:
    """The message of a command line that must end with exit code 2."""
    with pytest.raises(SystemExit) as error:
        options(*arguments)
    assert error.value.code == 2
    message = capsys.readouterr().err
    assert "Traceback" not in message
    return message


@pytest.mark.parametrize("mode", OWN_DEFAULTS)
def test_arguments_defaults_come_from_the_configuration(mode):
    values = vars(options("--mode", mode))
    assert values == {**values, **DEFAULTS, "mode": mode, **OWN_DEFAULTS[mode]}


def test_arguments_of_a_mode_lack_the_flags_of_others():
    assert not {"staleness", "epsilon", "dcasgd_lambda"} & vars(options("--mode", "sync")).keys()


@pytest.mark.parametrize(("short", "long", "text", "value", "mode"), PUBLISHED)
def test_published_flags_keep_their_names(short, long, text, value, mode):
    for flag in (short, long):
        assert vars(options("--mode", mode, flag, text))[long[2:].replace("-", "_")] == value


def test_normalization_is_a_part_of_the_name_of_the_network():
    assert options("-n", "resnet18-v1x0.25", "--normalization", "group").network == "resnet18-v1x0.25-groupnorm"
    assert options("-n", "resnet18-v1-groupnorm").network == "resnet18-v1-groupnorm"
    assert options("-n", "resnet18-v1-groupnorm", "--normalization", "group").network == "resnet18-v1-groupnorm"
    assert options("-n", "lenet", "--normalization", "batch").network == "lenet"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["-m", "fast"], ["--mode", "'fast'", "esync"]),
        (["-n", "vgg"], ["--network", "'vgg'"]),
        (["-n", "lenet", "--normalization", "group"], ["lenet has no batch norm"]),
        (["-n", "resnet18-v1-groupnorm", "--normalization", "batch"], ["contradicts --network resnet18-v1-groupnorm"]),
        (["-n", "lenet", "--reestimate-statistics", "100"], ["network lenet has no batch norm"]),
        (["--reestimate-statistics", "9", "--no-evaluation", "--no-export"], ["--reestimate-statistics has no effect"]),
        (
            ["--weight-average", "polynomial", "--no-evaluation", "--no-export"],
            ["--weight-average has no effect with --no-evaluation and --no-export"],
        ),
        (["-b", "0"], ["--batch-size", "'0'", "whole number of 1 or more"]),
        (["-b", "many"], ["--batch-size", "'many'"]),
        (["-m", "sync", "-l", "0"], ["--learning-rate", "'0'", "above 0"]),
        (["--momentum", "-0.1"], ["--momentum", "'-0.1'", "0 or more"]),
        (["--seed", "-1"], ["--seed", "'-1'"]),
        (["--target-accuracy", "80"], ["--target-accuracy", "'80'", "at most 1"]),
        (["--partition", "random"], ["--partition", "'random'", "dirichlet:ALPHA"]),
        (["-port", "65536"], ["--state-server-port", "'65536'", "65535"]),
        (["--epsilon", "-0.1"], ["--epsilon", "'-0.1'", "or auto"]),
        (["--query-mode", "push"], ["--query-mode", "'push'", "delayed-ack"]),
        (["--job", "../mine"], ["--job", "'../mine'"]),
        (["--compression", "topk:0.01"], ["--compression", "'topk:0.01'", "none", "fp16", "2bit"]),
        (["-d", "mnist"], ["--dataset", "'mnist'", "fashion-mnist"]),
        (["--learning-rat", "0.1"], ["--learning-rat"]),
        (["left over"], ["left over"]),
        (["-b"], ["--batch-size"]),
    ],
)
def test_flag_with_bad_value_names_it_and_what_was_expected(capsys, arguments, parts):
    message = refused(capsys, *arguments)
    for part in parts:
        assert part in message


#: flag with a value, the modes where it makes sense
OF_SOME_MODES = [
    (["--learning-rate", "0.1"], {"sync", "async", "ssp", "local", "dgs", "dgc-async", "gd-async"}),
    (["--momentum", "0.1"], {"esync", "diloco", "dylu", "ssp", "sync", "async", "local", "dgs", "dgc-async"}),
    (["--staleness", "2"], {"ssp"}),
    (["--statistics", "rank0"], {"async", "ssp", "dylu", "dgs", "dgc-async", "gd-async"}),
    (["--weighting", "normalized"], {"esync", "diloco"}),
    (["--overlap"], {"esync", "diloco"}),
    (["--sparse-ratio", "0.1"], {"dgs", "dgc-async", "gd-async"}),
    (["--dgc-warm-up", "100"], {"dgc-async"}),
    (
        ["--checkpoint-dir", "x"],
        {"esync", "diloco", "dylu", "ssp", "sync", "async", "local", "dgs", "dgc-async", "gd-async"},
    ),
    (["--local-lr", "0.1"], {"esync", "diloco", "dylu"}),
    (["--global-lr", "0.1"], {"esync", "diloco", "dylu"}),
    (["--compression", "fp16"], {"esync", "diloco", "sync"}),
    (["--use-dcasgd", "1"], {"async"}),
    (["--dcasgd-lambda", "0.1"], {"async"}),
    (["--dcasgd-adaptive"], {"async"}),
    (["--state-server-ip", "x"], {"esync"}),
    (["--local-iterations", "2"], {"esync", "diloco", "dylu"}),
    (["--epsilon", "auto"], {"esync"}),
]


def test_misspelled_flag_is_refused_with_a_suggestion(capsys):
    message = refused(capsys, "--lerning-rate=0.1", "--momentun", "0.9", "--nothing-like-it")
    assert "--lerning-rate=0.1 (did you mean --learning-rate?)" in message
    assert "--momentun (did you mean --momentum?)" in message
    assert message.rstrip().endswith("0.9 --nothing-like-it")


@pytest.mark.parametrize(("arguments", "modes"), OF_SOME_MODES)
def test_flag_of_another_mode_is_refused(capsys, arguments, modes):
    extra_flags = ["--use-dcasgd", "1"] if "dcasgd" in arguments[0] else []
    assert options("--mode", min(modes), *arguments, *extra_flags).mode == min(modes)
    for mode in {"esync", "dylu", "ssp", "sync", "async", "local", "dgc-async"} - modes:
        message = refused(capsys, "--mode", mode, *arguments)
        assert f"{arguments[0]} makes no sense with --mode {mode}" in message
        assert all(right in message for right in modes)


def test_local_sgd_and_diloco_have_their_own_defaults():
    assert options("--mode", "local-sgd").local_iterations == config.LOCAL_ITERATIONS
    diloco = options("--mode", "diloco", "--local-iterations", "7")
    assert (diloco.local_iterations, diloco.global_lr, diloco.outer_momentum) == (
        7,
        config.DILOCO_GLOBAL_LR,
        config.DILOCO_OUTER_MOMENTUM,
    )
    assert options("--mode", "diloco", "--global-lr", str(config.LEARNING_RATE_GLOBAL)).global_lr == 1.0
    assert options("--mode", "esync").local_iterations is None


def test_flag_with_its_default_value_counts_as_given(capsys):
    message = refused(capsys, "--mode", "sync", "--global-lr", str(config.LEARNING_RATE_GLOBAL))
    assert "--global-lr makes no sense with --mode sync" in message


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["-s", "1", "--partition", "uniform"], ["--split-by-class 1", "--partition uniform"]),
        (["-c", "1", "-g", "0"], ["--cpu 1", "--gpu 0"]),
        (["-m", "async", "--dcasgd-lambda", "0.1"], ["--dcasgd-lambda", "--use-dcasgd 1"]),
        (["--local-iterations", "3", "-ip", "host"], ["--local-iterations", "state server"]),
        (["--local-iterations", "3", "--epsilon", "0.1"], ["--local-iterations", "state server"]),
        (["--no-evaluation", "--target-accuracy", "0.8"], ["--no-evaluation", "--target-accuracy"]),
        (["--no-evaluation", "-e", "5"], ["--no-evaluation", "--eval-duration"]),
        (["--resume"], ["--resume needs --checkpoint-dir"]),
        (["--run-ahead", "5"], ["--run-ahead needs --overlap"]),
        (["--overlap", "--query-mode", "blocking"], ["--overlap", "--query-mode blocking"]),
        (["--checkpoint-every", "5"], ["--checkpoint-every needs --checkpoint-dir"]),
        (["--checkpoint-dir", "x", "--resume", "--overwrite"], ["--resume", "--overwrite"]),
    ],
)
def test_contradictory_flags_are_refused(capsys, arguments, parts):
    message = refused(capsys, *arguments)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(("typed", "variable"), [("--resume", "ESYNC_OVERWRITE"), ("--overwrite", "ESYNC_RESUME")])
def test_flag_outranks_the_contrary_variable(typed, variable):
    result = read("worker", "", ["--checkpoint-dir", "x", typed], environment={variable: "1"})
    assert (result.resume, result.overwrite) == (typed == "--resume", typed == "--overwrite")


@pytest.mark.parametrize(
    ("arguments", "partition"),
    [
        ([], config.PARTITION),
        (["-s", "1"], "class"),
        (["-s", "0"], config.PARTITION),
        (["-s", "1", "--partition", "class"], "class"),
        (["--partition", "dirichlet:0.3"], "dirichlet:0.3"),
        (["--partition", "contiguous"], "contiguous"),
    ],
)
def test_partition_flags_choose_the_partition(arguments, partition):
    assert options(*arguments).partition == partition


def test_help_names_every_flag(capsys):
    with pytest.raises(SystemExit) as error:
        options("--help")
    assert error.value.code == 0
    text = capsys.readouterr().out
    for name in {*DEFAULTS, *(name for defaults in OWN_DEFAULTS.values() for name in defaults)}:
        assert f"--{name.replace('_', '-')}" in text


def test_version_flag_prints_the_version(capsys):
    from esync import __version__

    with pytest.raises(SystemExit) as error:
        options("--version")
    assert error.value.code == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-m sync-switch", "needs --train-steps, or --epochs"),
        ("-m sync-switch --train-steps 5", "train-steps has 1 entries"),
        ("-m sync-switch --epochs 1 --bsp-share 1.5", "should be a number from 0 to 1"),
        ("-m sync-switch --epochs 1 --lr-decay 0.5", "should be SHARE:FACTOR"),
        ("-m sync --bsp-share 0.5", "--bsp-share makes no sense with --mode sync"),
        ("-m sync-switch --epochs 1 --elastic", "--elastic makes no sense with --mode sync-switch"),
    ],
)
def test_sync_switch_with_inconsistent_flags_is_refused(words, message, capsys):
    assert message in refused(capsys, *words.split())


def test_dcasgd_mode_equals_the_published_flag():
    published, plain = options("-m", "async", "-dcasgd", "1"), options("-m", "dcasgd")
    assert published.algorithm is plain.algorithm
    assert (published.mode, published.algorithm.name) == ("async", "dcasgd")
    assert options("-m", "async").algorithm.name == "async"


def test_dcasgd_mode_with_use_dcasgd_0_is_refused(capsys):
    message = refused(capsys, "-m", "dcasgd", "-dcasgd", "0")
    assert "--mode dcasgd is DC-ASGD, --use-dcasgd 0 asks to do without" in message
    assert options("-m", "dcasgd", "-dcasgd", "1").algorithm.name == "dcasgd"


def test_preset_stands_for_its_flags():
    for name, preset in PRESETS.items():
        options = vars(read("w", "", ["-n", "resnet18-v1", "--preset", name]))
        spelt_out = vars(read("w", "", ["-n", "resnet18-v1", *preset.words]))
        assert options == {**spelt_out, "preset": name, "typed": spelt_out["typed"] | {"preset"}}


def test_preset_with_a_flag_that_is_typed_leaves_it_as_typed():
    options = read("w", "", ["--compression", "fp16", "-n", "resnet18-v1", "--preset=skewed-data"])
    assert (options.compression, options.mode, options.network) == ("fp16", "esync", "resnet18-v1-groupnorm")


@pytest.mark.parametrize(
    ("network", "flags", "trained"),
    [
        ("lenet", [], "lenet"),
        ("resnet18-v1x0.25", [], "resnet18-v1x0.25-groupnorm"),
        ("resnet18-v1-groupnorm", [], "resnet18-v1-groupnorm"),
        ("pathlib:Path", ["--normalization", "batch"], "pathlib:Path"),
    ],
)
def test_preset_for_skewed_data_replaces_batch_norm_where_there_is_any(network, flags, trained):
    assert read("w", "", ["--preset", "skewed-data", "-n", network, *flags]).network == trained


def test_preset_with_one_of_its_switches_turned_off_leaves_the_others_on():
    options = read("w", "", ["-n", "resnet18-v1", "--preset=fast", "--no-overlap"])
    assert (options.overlap, options.mode, options.leave_out) == (False, "tiered", "auto")


def test_preset_in_an_error_about_flags_is_spelt_out(capsys):
    error = refused(capsys, "--preset", "skewed-data", "-n", "pathlib:Path")
    assert "add --normalization batch" in error
    assert "(--preset skewed-data stands for --mode esync" in error
    assert "--mode sync" in refused(capsys, "--preset", "skewed-data", "-n", "resnet18-v1", "-m", "sync")


@pytest.mark.parametrize(
    ("described", "typed", "compression", "network"),
    [
        ({"preset": "skewed-data", "compression": "fp16"}, {}, "fp16", "resnet18-v1-groupnorm"),
        ({"compression": "fp16"}, {"preset": "skewed-data"}, "auto", "resnet18-v1-groupnorm"),
        ({"compression": "fp16"}, {"preset": "skewed-data", "compression": "none"}, "none", "resnet18-v1-groupnorm"),
        ({"preset": "skewed-data"}, {"normalization": "batch"}, "auto", "resnet18-v1"),
    ],
)
def test_preset_of_a_description_ranks_behind_all_others_and_a_typed_one_before(described, typed, compression, network):
    options = understood(merge({"network": "resnet18-v1", **described}, typed))
    values = (options.mode, options.compression, options.network, options.preset)
    assert values == ("esync", compression, network, "skewed-data")


#: Variables, what is typed beside them → what the options are then.
FROM_ENVIRONMENT = [
    ({}, "", {"elastic": False, "lease": config.LEASE, "straggle": (), "cpu": config.USE_CPU, "gpu": None}),
    ({"ESYNC_DEVICE": "cpu"}, "", {"cpu": 1, "gpu": None}),
    ({"ESYNC_DEVICE": "gpu2"}, "", {"cpu": 0, "gpu": 2}),
    ({"ESYNC_DEVICE": "cpu"}, "-g 1", {"cpu": 0, "gpu": 1}),
    ({"ESYNC_DEVICE": "gpu2"}, "-c 1", {"cpu": 1, "gpu": None}),
    ({"ESYNC_LEASE": "7"}, "", {"elastic": True, "lease": 7.0}),
    ({"ESYNC_STEP_TIME": "0.5", "ESYNC_SEED": "4"}, "--step-time 0.25", {"step_time": 0.25, "seed": 4}),
    ({"ESYNC_LOG_DIR": "there", "ESYNC_OVERWRITE": "1"}, "", {"log_dir": "there", "overwrite": True}),
    ({"ESYNC_ALGORITHM": "ssp"}, "", {"mode": config.MODE}),
]


@pytest.mark.parametrize(("environment", "typed", "expected"), FROM_ENVIRONMENT)
def test_variables_are_the_defaults_of_flags(environment, typed, expected):
    options = vars(read("worker", "", typed.split(), environment=environment))
    assert {name: options[name] for name in expected} == expected


def test_flags_reach_the_built_in_programs_unchanged_by_variables():
    words = (
        "--elastic --lease 5 --job a --start-timeout 3 --round-timeout 4 --step-time 0.1 --log-dir l --tensorboard t"
    )
    words += " --wandb w --mlflow http://m"
    words += " --wait-for-replacement 2 --checkpoint-dir k --checkpoint-every 9 --keep-checkpoints 2 --resume"
    typed = options(*words.split())
    arguments = vars(read("worker", "", [], environment=environment_of(typed).variables()))
    assert arguments == {**vars(typed), "typed": frozenset()}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ESYNC_STEP_TIME", "0", "ESYNC_STEP_TIME is '0', but should be a number of seconds above 0"),
        ("ESYNC_COLLECTIVE", "rings", "ESYNC_COLLECTIVE is 'rings', but should be one of ps, ring"),
        ("ESYNC_JOB", "-", "ESYNC_JOB is '-', but should be a name of"),
    ],
)
def test_wrong_variable_is_refused_as_a_flag_is(capsys, name, value, message):
    with pytest.raises(SystemExit):
        read("worker", "", [], environment={name: value})
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "momentum", "rate", "scaling"),
    [
        (["--momentum", "auto", "--local-lr", "0.5"], 0.9, 0.1, "linear"),
        (["--preset", "fast", "--local-lr", "0.5"], 0.9, 0.1, "linear"),
        (["--preset", "fast", "--local-lr", "0.5", "--lr-scaling", "none"], 0.9, 0.1, "none"),
        (["--preset", "fast", "--local-lr", "0.5", "--momentum", "0.5"], 0.5, 0.5, "none"),
        (["--preset", "fast", "--local-lr", "0.5", "--optimizer", "adam"], None, 0.5, "none"),
        (["--preset", "skewed-data", "--local-lr", "0.5"], None, 0.5, "none"),
    ],
)
def test_automatic_momentum_chooses_the_rate_unless_a_momentum_is_given(words, momentum, rate, scaling):
    options = read("worker", "", words)
    assert (options.momentum, options.local_lr) == (momentum, pytest.approx(rate))
    assert choose_algorithm(options).options.lr_scaling == scaling


@pytest.mark.parametrize(("mode", "flags"), [("sync", []), ("esync", ["--local-iterations", "4"]), ("diloco", [])])
def test_automatic_compression_is_refused_where_no_state_server_is_asked(mode, flags, capsys):
    with pytest.raises(SystemExit):
        read("worker", "", ["--mode", mode, "--compression", "auto", *flags])
    assert "is chosen by the state server, which is not asked here" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--weight-average", "none"]])
def test_preset_without_evaluation_and_export_is_no_contradiction(flags):
    options = read("worker", "", ["--preset", "fast", "--no-evaluation", "--no-export", *flags])
    assert (options.mode, options.no_evaluation) == ("tiered", True)
