import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from esync.gluon.optimizers import AdamW as GluonAdamW
from esync.rules import (
    RESET_MOMENTUM,
    RULES,
    STATE_VECTORS,
    AdaGradRule,
    AdamRule,
    AdamWRule,
    CenteredRMSPropRule,
    DelayCompensatedSGDRule,
    NAGRule,
    RMSPropRule,
    SGDRule,
    Step,
    add_mean_update,
    delayed_nesterov,
    join_state,
    make_rule,
    momentum_sgd,
    outer_nesterov,
    replace_by_mean,
    sgd,
    split_state,
)
from esync.runtime.mxnet_import import mx

from .support.memory_servers import floats

#: Makes an array of the kind that the rules are to be run on.
KINDS = [pytest.param(np.float32, id="numpy"), pytest.param(lambda values: mx.nd.array(values), id="mxnet")]


def array(*values: float) -> np.ndarray:
    return np.float32(values)


def numpy_of(array):
    return array if isinstance(array, np.ndarray) else array.asnumpy()


def numbers(count: int, maximum: float = 100.0) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float32, count, elements=st.floats(-maximum, maximum, width=32))


#: There are many rules, and MXNet's operators take their time.
some = settings(max_examples=25)
three = st.tuples(numbers(5), numbers(5), numbers(5))
rates = st.floats(1e-4, 1.0)


# --- SGD ------------------------------------------------------------------------------------------


# --- Gluon's other optimizers ---------------------------------------------------------------------

#: Gluon's optimizer, its options, our rule. The options are such that each of them can be seen in
#: the weights.
AS_GLUON = [
    (mx.optimizer.SGD, {"momentum": 0.0}, SGDRule),
    (mx.optimizer.SGD, {"momentum": 0.9}, SGDRule),
    (mx.optimizer.NAG, {"momentum": 0.0}, NAGRule),
    (mx.optimizer.NAG, {"momentum": 0.9}, NAGRule),
    (mx.optimizer.Adam, {}, AdamRule),
    (mx.optimizer.Adam, {"beta1": 0.5, "beta2": 0.9, "epsilon": 0.01}, AdamRule),
    (GluonAdamW, {}, AdamWRule),
    (GluonAdamW, {"beta1": 0.5, "beta2": 0.9, "epsilon": 0.01}, AdamWRule),
    (mx.optimizer.RMSProp, {}, RMSPropRule),
    (mx.optimizer.RMSProp, {"gamma1": 0.5, "epsilon": 0.01, "clip_weights": 1.0}, RMSPropRule),
    (mx.optimizer.RMSProp, {"centered": True}, CenteredRMSPropRule),
    (
        mx.optimizer.RMSProp,
        {"centered": True, "gamma1": 0.5, "gamma2": 0.7, "epsilon": 0.01, "clip_weights": 1.0},
        CenteredRMSPropRule,
    ),
    (mx.optimizer.AdaGrad, {}, AdaGradRule),
    (mx.optimizer.AdaGrad, {"eps": 0.01}, AdaGradRule),
]


@pytest.mark.parametrize(
    ("theirs", "options", "ours"), AS_GLUON, ids=lambda value: getattr(value, "__name__", str(value))
)
@pytest.mark.parametrize(("decay", "clip"), [(0.0, None), (0.1, 0.5)])
def test_rules_equal_gluons_optimizers(theirs, options, ours, decay, clip):
    rng = np.random.default_rng(0)
    start = rng.standard_normal(200).astype(np.float32)
    clipping = {} if clip is None else {"clip_gradient": clip}
    optimizer = theirs(learning_rate=0.1, wd=decay, **options, **clipping)
    updater = mx.optimizer.get_updater(optimizer)
    momentum = options.get("momentum", 0.0)
    rule = ours(**{name: value for name, value in options.items() if name not in ("momentum", "centered")}, **clipping)
    gluons, weights, state = mx.nd.array(start), start, None
    for turn in range(12):
        gradient = rng.standard_normal(200).astype(np.float32)
        rate = 0.1 / (1 + turn)
        optimizer.set_learning_rate(rate)
        updater(0, mx.nd.array(gradient), gluons)
        weights, state = rule(weights, gradient, state, Step(rate, momentum, decay, turn=turn))
        # Most differ by a bit; where a variance is the difference of two squares, some of its
        # digits are lost.
        np.testing.assert_allclose(weights, gluons.asnumpy(), rtol=2e-5, atol=5e-6)
    assert np.abs(numpy_of(weights) - start).max() > 0.1


def test_adam_restored_corrects_its_means_as_if_uninterrupted():
    """A server restores the state and the number of steps from the checkpoint."""
    gradients = np.random.default_rng(1).standard_normal((6, 5)).astype(np.float32)
    weights, state = np.ones(5, np.float32), None
    for turn, gradient in enumerate(gradients):
        if turn == 3:
            checkpoint = weights.copy(), join_state([vector.copy() for vector in split_state(state)])
        weights, state = AdamRule()(weights, gradient, state, Step(0.1, turn=turn))
    resumed, state = checkpoint
    for turn in range(3, 6):
        resumed, state = AdamRule()(resumed, gradients[turn], state, Step(0.1, turn=turn))
    assert resumed.tobytes() == weights.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_centered_rmsprop_with_negative_rounded_variance_stays_finite(kind):
    """With a constant gradient MXNet's own operator returns NaN."""
    gradient = kind(10 * np.random.default_rng(0).standard_normal(2000).astype(np.float32))
    weights, state = kind(np.zeros(2000, np.float32)), None
    for turn in range(200):
        weights, state = CenteredRMSPropRule()(weights, gradient, state, Step(0.001, turn=turn))
    assert np.isfinite(numpy_of(weights)).all()


#: Rules whose steps are proportional to the gradient, so that the rate multiplies the scale; and those that normalize
#: it, except for ε. Weight decay and clipping are relative to the mean gradient in all of them.
PROPORTIONAL = [
    sgd,
    momentum_sgd,
    DelayCompensatedSGDRule(0.7),
    DelayCompensatedSGDRule(0.7, adaptive=True),
    SGDRule(clip_gradient=1.5),
    NAGRule(),
    NAGRule(clip_gradient=1.5),
]
NORMALIZING = [
    AdamRule(),
    AdamRule(clip_gradient=1.5),
    AdamWRule(),
    RMSPropRule(),
    CenteredRMSPropRule(),
    AdaGradRule(),
]


@pytest.mark.parametrize("rule", [*PROPORTIONAL, *NORMALIZING], ids=lambda rule: getattr(rule, "__name__", str(rule)))
def test_rules_on_a_scaled_sum_equal_the_mean_with_the_whole_rate(rule):
    rng = np.random.default_rng(0)
    summed, sent, *gradients = rng.standard_normal((6, 50)).astype(np.float32)
    mean, states = summed, [None, None]
    # momentum_sgd's memory holds gradients: one unit for all of them.
    momentum = 0.9 if rule in PROPORTIONAL and rule is not momentum_sgd else 0.0
    scales = (64, 64, 8 if rule in PROPORTIONAL else 64, 64)  # the batches of two workers
    for turn, (scale, gradient) in enumerate(zip(scales, gradients, strict=True)):
        gradient += np.copysign(0.5, gradient)  # such that ε makes no difference
        step = Step(0.01, momentum, 0.05, sent, turn=turn, gradient_scale=scale)
        summed, states[0] = rule(summed, scale * gradient, states[0], step)
        rate = 0.01 * (scale if rule in PROPORTIONAL else 1)
        mean, states[1] = rule(mean, gradient, states[1], Step(rate, momentum, 0.05, sent, turn=turn))
    np.testing.assert_allclose(summed, mean, rtol=1e-4, atol=1e-5)


# --- ESync and statistics -------------------------------------------------------------------------


def test_add_mean_update_equals_the_step_by_hand():
    weights, state = add_mean_update(array(1.0, -2.0), array(4.0, 8.0), None, Step(learning_rate=0.5))
    assert weights.tolist() == [3.0, 2.0]
    assert state is None


@pytest.mark.parametrize("before", [0.0, 5.0, -1e30, np.inf, np.nan])
def test_replace_by_mean_replaces_any_previous_value(before):
    """Statistics that were once infinite must be able to recover."""
    step = Step(learning_rate=0.1, momentum=0.9, weight_decay=0.5)
    mean, state = replace_by_mean(array(before, 1.0), array(0.5, -3.0), None, step)
    assert mean.tolist() == [0.5, -3.0]
    assert state is None


# --- DC-ASGD --------------------------------------------------------------------------------------

# All golden numbers below are computed by hand from Zheng et al., Equations 10 and 14:
# weights w = (2, 1), sent last w_bak = (1, 3), gradient g = (3, −2), learning rate η = 0.1.


def test_dcasgd_with_constant_lambda_equals_the_step_by_hand():
    # λ = 0.5: g̃ = g + 0.5·g²·(w − w_bak) = (3 + 0.5·9·1, −2 + 0.5·4·(−2)) = (7.5, −6);
    # w − 0.1·g̃ = (1.25, 1.6)
    rule = DelayCompensatedSGDRule(strength=0.5, adaptive=False)
    weights, _ = rule(array(2.0, 1.0), array(3.0, -2.0), None, Step(0.1, sent=array(1.0, 3.0)))
    np.testing.assert_allclose(weights, [1.25, 1.6], rtol=1e-6)


def test_dcasgd_with_adaptive_lambda_equals_the_steps_by_hand():
    # MeanSquare = 0.25·g² = (2.25, 1), so λ = 0.5 ÷ (1.5, 1) = (1/3, 1/2) except for the 10⁻⁷ under
    # the root:
    # g̃ = (3 + 1/3·9·1, −2 + 1/2·4·(−2)) = (6, −6);  w = (2 − 0.6, 1 + 0.6) = (1.4, 1.6)
    rule = DelayCompensatedSGDRule(strength=0.5, adaptive=True, decay=0.75)
    weights, state = rule(array(2.0, 1.0), array(3.0, -2.0), None, Step(0.1, sent=array(1.0, 3.0)))
    np.testing.assert_allclose(weights, [1.4, 1.6], rtol=1e-5)
    # Then g = (5, 1), w_bak = (0.4, 2.6): MeanSquare = 0.75·(2.25, 1) + 0.25·(25, 1) = (7.9375, 1),
    # λ = (0.5 ÷ 2.817357, 0.5) = (0.1774713, 0.5)
    # g̃ = (5 + 0.1774713·25·1, 1 + 0.5·1·(−1)) = (9.436783, 0.5);
    # w = (1.4 − 0.9436783, 1.6 − 0.05)
    weights, _ = rule(weights, array(5.0, 1.0), state, Step(0.1, sent=array(0.4, 2.6)))
    np.testing.assert_allclose(weights, [0.4563217, 1.55], rtol=1e-5)


def test_dcasgd_applies_momentum_to_the_compensated_gradient():
    # g̃ = (7.5, −6) as above; v = −0.1·g̃ = (−0.75, 0.6).  Then g = (1, 1) with no delay:
    # v = 0.5·v − 0.1·g = (−0.475, 0.2);  w = (1.25 − 0.475, 1.6 + 0.2)
    rule = DelayCompensatedSGDRule(strength=0.5, adaptive=False)
    weights, state = rule(array(2.0, 1.0), array(3.0, -2.0), None, Step(0.1, 0.5, sent=array(1.0, 3.0)))
    weights, _ = rule(weights, array(1.0, 1.0), state, Step(0.1, 0.5, sent=weights))
    np.testing.assert_allclose(weights, [0.775, 1.8], rtol=1e-6)


@pytest.mark.parametrize("adaptive", [False, True])
@some
@given(drawn=three, rate=rates, momentum=st.sampled_from([0.0, 0.9]), decay=st.sampled_from([0.0, 0.01]))
def test_dcasgd_with_lambda_0_equals_sgd_exactly(adaptive, drawn, rate, momentum, decay):
    weights, gradient, sent = drawn
    rule = DelayCompensatedSGDRule(strength=0.0, adaptive=adaptive)
    mine, plain, state, velocity = weights, weights, None, None
    for _ in range(3):
        mine, state = rule(mine, gradient, state, Step(rate, momentum, decay, sent))
        plain, velocity = sgd(plain, gradient, velocity, Step(rate, momentum, decay))
        assert np.array_equal(mine, plain)


# --- all rules ------------------------------------------------------------------------------------


def name(rule) -> str:
    return getattr(rule, "__name__", str(rule))  # str of a function differs from process to process


EVERY_RULE = [
    sgd,
    momentum_sgd,
    add_mean_update,
    outer_nesterov,
    delayed_nesterov,
    replace_by_mean,
    DelayCompensatedSGDRule(0.5, False),
    DelayCompensatedSGDRule(0.5, True),
    SGDRule(clip_gradient=1.5),
    NAGRule(),
    AdamRule(clip_gradient=1.5),
    AdamWRule(),
    RMSPropRule(clip_gradient=1.5, clip_weights=0.5),
    CenteredRMSPropRule(),
    AdaGradRule(clip_gradient=1.5),
]


@pytest.mark.parametrize("rule", EVERY_RULE, ids=name)
@pytest.mark.parametrize("kind", KINDS)
def test_rules_change_nothing_in_place(rule, kind):
    """Arguments and earlier results stay the same, no result shares memory with an argument, all are float32."""
    given_arrays = [kind([2.0, 1.0]), kind([3.0, -2.0]), kind([1.0, 3.0])]
    weights, value, sent = given_arrays
    step = Step(0.1, 0.9, 0.01, sent)
    first, state = rule(weights, value, None, step)
    assert {numpy_of(part).dtype for part in (first, *parts(state))} == {np.dtype(np.float32)}
    first_copy = numpy_of(first).copy()
    state_kept = [numpy_of(part).copy() for part in parts(state)]
    rule(first, value, state, step)
    assert [numpy_of(array).tolist() for array in given_arrays] == [[2.0, 1.0], [3.0, -2.0], [1.0, 3.0]]
    assert np.array_equal(numpy_of(first), first_copy)
    assert all(np.array_equal(numpy_of(now), before) for now, before in zip(parts(state), state_kept, strict=True))
    first[:] = 77.0
    assert [numpy_of(array).tolist() for array in given_arrays] == [[2.0, 1.0], [3.0, -2.0], [1.0, 3.0]]


def parts(state) -> list:
    return [part for part in (state if isinstance(state, tuple) else (state,)) if part is not None]


@pytest.mark.parametrize("rule", EVERY_RULE, ids=name)
@some
@given(drawn=three, rate=rates, cut=st.integers(1, 4))
def test_rules_give_the_same_result_for_a_model_cut_in_pieces(rule, drawn, rate, cut):
    weights, value, sent = drawn
    full, pieces, state, states = weights, [weights[:cut], weights[cut:]], None, [None, None]
    for _ in range(2):
        full, state = rule(full, value, state, Step(rate, 0.9, 0.01, sent))
        for place, part in enumerate((slice(cut), slice(cut, None))):
            step = Step(rate, 0.9, 0.01, sent[part])
            pieces[place], states[place] = rule(pieces[place], value[part], states[place], step)
    assert np.array_equal(full, np.concatenate(pieces))


@pytest.mark.parametrize("rule", EVERY_RULE, ids=name)
@some
@given(drawn=three, rate=rates)
def test_rules_agree_on_numpy_and_mxnet_arrays(rule, drawn, rate):
    theirs = [mx.nd.array(array) for array in drawn]
    weights, state = drawn[0], None
    other, other_state = theirs[0], None
    for _ in range(2):
        weights, state = rule(weights, drawn[1], state, Step(rate, 0.9, 0.01, drawn[2]))
        other, other_state = rule(other, theirs[1], other_state, Step(rate, 0.9, 0.01, theirs[2]))
    np.testing.assert_allclose(weights, other.asnumpy(), rtol=1e-3, atol=1e-3)


# --- by name --------------------------------------------------------------------------------------


def test_make_rule_returns_the_rule_of_that_name():
    assert make_rule("sgd", {}) == SGDRule()
    assert make_rule("adam", {"beta2": 0.99}) == AdamRule(beta2=0.99)
    assert make_rule("add_mean_update", {}) is add_mean_update
    assert make_rule("delay_compensated_sgd", {"strength": 2.0, "adaptive": True}) == DelayCompensatedSGDRule(2.0, True)


@pytest.mark.parametrize("name", RULES)
def test_state_vectors_is_the_number_that_a_rule_keeps(name):
    rule = make_rule(name, {"adaptive": True} if name == "delay_compensated_sgd" else {})
    weights, value, sent = (np.float32(values) for values in ([2.0, 1.0], [3.0, -2.0], [1.0, 3.0]))
    _, state = rule(weights, value, None, Step(0.1, 0.9, 0.01, sent))
    assert STATE_VECTORS[name] == (0 if state is None else len(split_state(state)))


def test_make_rule_with_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown update rule 'lion'") as error:
        make_rule("lion", {})
    assert all(name in str(error.value) for name in RULES)


@pytest.mark.parametrize("name", ["sgd", "delay_compensated_sgd"])
def test_make_rule_with_unknown_option_names_it(name):
    with pytest.raises(ValueError, match=f"{name}.*colour"):
        make_rule(name, {"colour": "blue"})


# --- SGD whose momentum gathers gradients ---------------------------------------------------------


@given(three, rates)
def test_momentum_sgd_with_constant_rate_equals_sgd_with_momentum(drawn, rate):
    weights, first, second = drawn
    step = Step(rate, momentum=0.5, weight_decay=0.25)
    one, velocity = sgd(weights, first, None, step)
    other, gathered = momentum_sgd(weights, first, None, step)
    np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-3)
    one, _ = sgd(one, second, velocity, step)
    other, _ = momentum_sgd(other, second, gathered, step)
    np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-3)


def test_momentum_sgd_with_changed_rate_applies_it_to_the_gathered_momentum():
    weights, gathered = momentum_sgd(array(0.0), array(1.0), None, Step(1.0, momentum=0.5))
    weights, gathered = momentum_sgd(weights, array(1.0), gathered, Step(0.25, momentum=0.5))
    assert weights.tolist() == [-1.0 - 0.25 * 1.5]
    assert gathered.tolist() == [1.5]
    weights, gathered = momentum_sgd(weights, array(1.0), gathered, Step(0.25))
    assert gathered is None


def test_momentum_sgd_reset_takes_the_step_with_momentum_and_forgets_it():
    _, gathered = momentum_sgd(np.float32([0.0]), np.float32([1.0]), None, Step(1.0, momentum=0.5))
    step = Step(1.0, momentum=0.5, scalars={RESET_MOMENTUM: 1.0})
    weights, forgotten = momentum_sgd(np.float32([0.0]), np.float32([1.0]), gathered, step)
    assert weights.tolist() == [-1.5]
    assert forgotten is None
    unsaid = Step(1.0, momentum=0.5, scalars={RESET_MOMENTUM: math.nan})
    assert momentum_sgd(np.float32([0.0]), np.float32([1.0]), gathered, unsaid)[1].tolist() == [1.5]


# --- Nesterov's momentum on the mean update ------------------------------------------------------


def test_outer_nesterov_equals_the_steps_by_hand():
    step = Step(learning_rate=0.5, momentum=0.5)
    weights, velocity = outer_nesterov(np.float32([1.0]), np.float32([4.0]), None, step)
    assert (weights.tolist(), velocity.tolist()) == ([1 + 0.5 * (4 + 0.5 * 4)], [4])
    weights, velocity = outer_nesterov(weights, np.float32([2.0]), velocity, step)
    assert (weights.tolist(), velocity.tolist()) == ([4 + 0.5 * (2 + 0.5 * 4)], [0.5 * 4 + 2])


def test_outer_nesterov_without_momentum_is_the_plain_mean():
    arrays = floats(1, 6), floats(2, 6)
    weights, velocity = outer_nesterov(*arrays, None, Step(0.3))
    assert velocity is None
    assert weights.tobytes() == add_mean_update(*arrays, None, Step(0.3))[0].tobytes()


def test_delayed_nesterov_equals_the_steps_by_hand():
    weights, state = np.float32([0.0]), None
    moved = []
    for turn, update in enumerate([4.0, 8.0, 2.0, 6.0]):
        step = Step(learning_rate=0.5, momentum=0.5, turn=turn, workers=2)
        weights, state = delayed_nesterov(weights, np.float32([update]), state, step)
        moved.append(float(weights[0]))
    first = 0.5 * (4 / 2)
    second = first + 0.5 * (8 / 2 + 0.5 * 6)  # v = (4 + 8)/2
    third = second + 0.5 * (2 / 2)  # no momentum in between
    assert moved == [first, second, third, third + 0.5 * (6 / 2 + 0.5 * (0.5 * 6 + 4))]
