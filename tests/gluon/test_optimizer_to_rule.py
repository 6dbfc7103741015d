"""The rule and its options for each Gluon optimizer; tests/test_rules.py compares the steps."""

import json

import numpy as np
import pytest

import esync
from esync.algorithms import ASGD, Algorithm, LocalSGD
from esync.exchange import Specification
from esync.exchange.protocol.round_state import Limits
from esync.gluon.optimizer_to_rule import OPTIMIZER_RULES, rule_of
from esync.gluon.optimizers import AdamW
from esync.rules import make_rule
from esync.runtime.mxnet_import import mx

from ..support.scripted_world import steady_world
from ..support.small_net import flat, make_net, take_steps

optimizers = mx.optimizer


def asked(optimizer: str, algorithm: str | Algorithm = "sync", **options):
    """A network, and a trainer of it that has started."""
    net = make_net()
    world, limits = steady_world(flat(net)), Limits(samples=1000)
    trainer = esync.Trainer(net.collect_params(), optimizer, options, algorithm=algorithm, world=world, limits=limits)
    trainer.start()
    return net, trainer


@pytest.mark.parametrize(
    ("optimizer", "rule", "options"),
    [
        (optimizers.SGD(momentum=0.9), "sgd", {}),
        (optimizers.SGD(clip_gradient=0.5), "sgd", {"clip_gradient": 0.5}),
        (optimizers.NAG(momentum=0.9), "nag", {}),
        (optimizers.Adam(), "adam", {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}),
        (
            optimizers.Adam(beta1=np.float32(0.5), clip_gradient=1),
            "adam",
            {"beta1": 0.5, "beta2": 0.999, "epsilon": 1e-8, "clip_gradient": 1.0},
        ),
        (AdamW(beta2=0.99), "adamw", {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8}),
        (
            optimizers.RMSProp(gamma1=0.8, clip_weights=3),
            "rmsprop",
            {"gamma1": 0.8, "epsilon": 1e-8, "clip_weights": 3.0},
        ),
        (optimizers.RMSProp(centered=True), "centered_rmsprop", {"gamma1": 0.9, "gamma2": 0.9, "epsilon": 1e-8}),
        (optimizers.AdaGrad(eps=1e-3), "adagrad", {"eps": 1e-3}),
    ],
)
def test_rule_of_optimizer_has_its_constants_as_options(optimizer, rule, options):
    choice = rule_of(optimizer, (), "sync")
    assert (choice.name, choice.options) == (rule, options)
    assert make_rule(rule, json.loads(json.dumps(choice.options))) == make_rule(rule, options)


@pytest.mark.parametrize("name", OPTIMIZER_RULES)
def test_rule_defaults_are_those_of_gluon(name):
    choice = rule_of(optimizers.create(name), (), "sync")
    assert make_rule(choice.name, choice.options) == make_rule(choice.name, {})


@pytest.mark.parametrize("name", ["lars", "lamb", "lbsgd", "groupadagrad"])
def test_rule_of_layer_wise_optimizer_is_refused(name):
    optimizer = optimizers.create(name)
    with pytest.raises(ValueError, match=f"'sync' .* {type(optimizer).__name__!r} needs the norms of whole layers"):
        rule_of(optimizer, (), "sync")


def test_rule_of_unsupported_optimizer_is_refused_with_the_supported_ones():
    unsupported = {
        kind
        for kind in optimizers.Optimizer.opt_registry.values()
        if kind.__name__ not in OPTIMIZER_RULES and "esync" not in kind.__module__
    }
    assert len(unsupported) > 10
    for kind in unsupported:
        with pytest.raises(ValueError, match=f"{kind.__name__!r} .*: use one of SGD, NAG, Adam, AdamW, RMSProp, AdaGr"):
            rule_of(kind(), (), "sync")


@pytest.mark.parametrize(
    ("optimizer", "text"),
    [
        (optimizers.Adam(beta1=1.0), "beta1 is 1.0, but should be 0 or more, and below 1"),
        (optimizers.Adam(beta2=float("nan")), "beta2 is nan"),
        (optimizers.Adam(epsilon=float("inf")), "epsilon is inf, but should be a finite number"),
        (optimizers.SGD(clip_gradient=0.0), "clip_gradient is 0.0, but should be a number above 0; leave it out"),
        (optimizers.RMSProp(clip_weights=-1.0), "clip_weights is -1.0"),
    ],
)
def test_rule_of_optimizer_with_invalid_constant_is_refused(optimizer, text):
    with pytest.raises(ValueError, match=text):
        rule_of(optimizer, (), "sync")


@pytest.mark.parametrize("algorithm", ["sync", "async", "ssp"])
def test_rule_is_in_the_specification_and_rates_are_in_every_commit(algorithm):
    net, trainer = asked("rmsprop", algorithm, learning_rate=0.5, wd=0.25, centered=True, gamma2=0.75)
    asked_for = trainer.world.made.specification
    assert asked_for.rule == "centered_rmsprop"
    assert asked_for.options == {"gamma1": 0.9, "gamma2": 0.75, "epsilon": 1e-8}
    for number, rate in enumerate((0.5, 0.125)):
        trainer.set_learning_rate(rate)
        take_steps(net, trainer, number)
    sent = trainer.world.made.sent
    assert [(payload.learning_rate, payload.momentum, payload.weight_decay) for payload in sent] == [
        (0.5, 0, 0.25),
        (0.125, 0, 0.25),
    ]


def test_rule_of_own_class_with_known_name_is_refused():
    class Adam(optimizers.Adam):
        pass

    with pytest.raises(ValueError, match="'Adam' has no rule there"):
        rule_of(Adam(), (), "sync")


@pytest.mark.parametrize("algorithm", ["sync", "async", "dgs", "scaffold"])
@pytest.mark.parametrize(
    ("owner", "method"),
    [(None, "update"), (None, "update_multi_precision"), (optimizers.SGD, "update_multi_precision")],
)
def test_optimizer_with_a_replaced_method_is_refused_where_steps_do_not_depend_on_it(
    algorithm, owner, method, monkeypatch
):
    """Programs skip updates so, for example after an overflow; in an optimizer or in its class."""
    net, trainer = asked("sgd", algorithm)
    monkeypatch.setattr(owner or trainer.optimizer, method, lambda *_: None)
    with pytest.raises(ValueError, match=rf"{method}\b.*: use "):
        take_steps(net, trainer, 0)


@pytest.mark.parametrize("algorithm", ["sync", "scaffold"])
def test_methods_that_are_put_back_or_make_no_step_are_accepted(algorithm):
    net, trainer = asked("sgd", algorithm)
    optimizer, rates = trainer.optimizer, []
    optimizer.update_multi_precision = optimizer.update_multi_precision
    set_rate = optimizer.set_learning_rate
    optimizer.set_learning_rate = lambda rate: (rates.append(rate), set_rate(rate))
    trainer.set_learning_rate(0.5)
    take_steps(net, trainer, 0)
    assert (rates, trainer.learning_rate) == ([0.5], 0.5)


@pytest.mark.parametrize("algorithm", ["sync", "dgs"])
@pytest.mark.parametrize(("name", "value"), [("_update", print), ("_updaters", [print])])
def test_step_of_gluon_that_is_replaced_is_refused_where_it_is_not_used(algorithm, name, value):
    net, trainer = asked("sgd", algorithm)
    setattr(trainer, name, value)
    with pytest.raises(ValueError, match=r"replaced trainer\._updaters or trainer\._update"):
        take_steps(net, trainer, 0)


def test_own_sgd_that_is_registered_as_sgd_takes_the_local_steps(monkeypatch):
    class SGD(optimizers.SGD):
        def update_multi_precision(self, *_):
            pass

    monkeypatch.setitem(optimizers.Optimizer.opt_registry, "sgd", SGD)
    net, trainer = asked("sgd", LocalSGD(local_iterations=2))
    before = flat(net)
    take_steps(net, trainer, 0)
    assert (type(trainer.optimizer), flat(net)) == (SGD, before)


def test_optimizer_with_a_replaced_method_takes_the_local_steps():
    net, trainer = asked("sgd", LocalSGD(local_iterations=2))
    before = flat(net)
    trainer.optimizer.update_multi_precision = lambda *_: None
    take_steps(net, trainer, 0)
    assert flat(net) == before


class Forgetful(ASGD):
    """Its servers would do SGD whatever the optimizer is."""

    def specification(self) -> Specification:
        """Ask for SGD."""
        return Specification(rule="sgd", synchronous=False)


def test_trainer_with_algorithm_that_ignores_the_optimizer_rule_is_refused():
    asked("sgd", Forgetful())
    with pytest.raises(ValueError, match=r"has the rule 'sgd' .*, but the optimizer's is 'adam'"):
        asked("adam", Forgetful())
