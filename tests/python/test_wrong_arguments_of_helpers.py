"""Arguments that do not fit are refused where they are given, with an error that names the function."""
import pytest

import pyflame as pf
from pyflame.nn.attention import bias, flex_attention


def optimizer():
    return pf.optim.SGD([pf.nn.Parameter(pf.ones(2))], lr=0.1, momentum=0.9)


@pytest.mark.parametrize("name", ["CyclicLR", "OneCycleLR"])
def test_a_schedule_of_something_else_is_a_type_error(name):
    with pytest.raises(TypeError, match=f"{name}: not an optimizer; got int"):
        getattr(pf.optim.lr_scheduler, name)(3, 0.1, 2)


def test_swalr_of_something_else_is_a_type_error():
    with pytest.raises(TypeError, match="SWALR: not an optimizer; got int"):
        pf.optim.swa_utils.SWALR(3, 0.1)


@pytest.mark.parametrize("up, down", [(0, None), (-1, 3), (2, 0)])
def test_a_cycle_has_steps_up_and_down(up, down):
    with pytest.raises(ValueError, match="CyclicLR: the steps of a cycle"):
        pf.optim.lr_scheduler.CyclicLR(optimizer(), 0.1, 1.0, step_size_up=up, step_size_down=down)


@pytest.mark.parametrize("values", [[1, 1], [1, 5], [[1, 0]]])
def test_what_is_no_permutation_has_no_inverse(values):
    with pytest.raises(ValueError, match="invert_permutation: no permutation"):
        pf.nn.utils.rnn.invert_permutation(pf.tensor(values))


def test_a_permutation_is_inverted():
    permutation = pf.tensor([2, 0, 1])
    assert pf.nn.utils.rnn.invert_permutation(permutation)[permutation].tolist() == [0, 1, 2]
    assert pf.nn.utils.rnn.invert_permutation(pf.tensor([], dtype=pf.int64)).tolist() == []


@pytest.mark.parametrize("sizes", [None, [2, 1]])
def test_packed_sequences_need_a_tensor_of_batch_sizes(sizes):
    with pytest.raises(TypeError, match="PackedSequence: batch_sizes is not a tensor"):
        pf.nn.utils.rnn.PackedSequence(pf.ones(3, 2), sizes)


@pytest.mark.parametrize("dim", [2, -3])
def test_weight_norm_refuses_a_dim_that_the_weight_lacks(dim):
    with pytest.raises(IndexError, match="weight_norm: dim out of range"):
        pf.nn.utils.parametrizations.weight_norm(pf.nn.Linear(3, 4), dim=dim)
    with pytest.raises(IndexError, match="weight_norm: dim out of range"), pytest.warns(FutureWarning):
        pf.nn.utils.weight_norm(pf.nn.Linear(3, 4), dim=dim)


def test_a_block_mask_needs_a_function_and_sizes():
    shown = lambda b, h, q, k: q >= k  # noqa: E731
    with pytest.raises(TypeError, match="mask_mod cannot be called"):
        flex_attention.create_block_mask(3, 1, 1, 4, 4)
    for size in (0, (1, 2, 3), (4, -1)):
        with pytest.raises(ValueError, match="the size of a block"):
            flex_attention.create_block_mask(shown, 1, 1, 4, 4, BLOCK_SIZE=size)


@pytest.mark.parametrize("function", [bias.causal_upper_left, bias.causal_lower_right])
def test_causal_masks_have_two_sizes(function):
    for sizes in ((2,), (2, 3, 4)):
        with pytest.raises(ValueError, match=f"{function.__name__}: wrong number of sizes"):
            function(*sizes)
    assert function((2, 3)).shape == function(2, 3).shape == (2, 3)


def test_a_recurrent_layer_has_one_of_four_modes():
    with pytest.raises(ValueError, match="RNNBase: there is no such mode; got 'x'"):
        pf.nn.RNNBase("x", 3, 4)


def test_linear_cross_entropy_checks_its_options():
    x, w, target = pf.ones(4, 3), pf.ones(5, 3), pf.tensor([0, 1, 2, 3])
    loss = pf.nn.functional.linear_cross_entropy
    with pytest.raises(TypeError, match="options are of the wrong type; got int"):
        loss(x, w, target, options=3)
    for rows in (0, -1, "a"):
        with pytest.raises(ValueError, match="batch_chunk_size is not a number of rows"):
            loss(x, w, target, options=pf.nn.LinearCrossEntropyOptions(batch_chunk_size=rows))


def test_batch_norm_of_a_list_is_a_type_error():
    with pytest.raises(TypeError, match="batch_norm"):
        pf.nn.functional.batch_norm([1.0], pf.zeros(1), pf.ones(1))


@pytest.mark.parametrize("name", pf.signal.windows.__all__)
def test_a_window_has_a_whole_number_of_samples(name):
    settings = {"a": [0.5, 0.5]} if name == "general_cosine" else {}
    with pytest.raises(TypeError, match=f"{name}: the length is not an integer; got M=2.5"):
        getattr(pf.signal.windows, name)(2.5, **settings)


def test_wrappers_of_modules_need_a_module():
    with pytest.raises(TypeError, match="DataParallel: not a module; got int"):
        pf.nn.DataParallel(3)
    with pytest.raises(TypeError, match="AveragedModel: not a module; got int"):
        pf.optim.swa_utils.AveragedModel(3)


def test_mean_pooling_needs_three_dims():
    with pytest.raises(ValueError, match="mean_pooling: not hidden states"):
        pf.models.mean_pooling(pf.ones(1, 4))


def test_a_convnext_of_one_block_can_be_made():
    assert pf.models.ConvNeXt([(8, 1)], num_classes=5)(pf.ones(1, 3, 32, 32)).shape == (1, 5)


def test_models_refuse_probabilities_out_of_range():
    with pytest.raises(ValueError, match="ConvNeXt: stochastic_depth_prob is out of range; got 1.5"):
        pf.models.ConvNeXt([(8, 1), (8, 1)], stochastic_depth_prob=1.5)


def test_transformers_need_token_ids_of_two_dims():
    bert = pf.models.BertModel(pf.models.BertConfig(vocab_size=10, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8))
    gpt = pf.models.GPT2Model(pf.models.GPT2Config(vocab_size=10, n_positions=8, n_embd=8, n_layer=1, n_head=2))
    for model in (bert, gpt):
        with pytest.raises(ValueError, match=f"{type(model).__name__}: the token ids have another rank"):
            model(pf.tensor([1, 2]))


def test_detach_variable_needs_a_tuple():
    with pytest.raises(RuntimeError, match="detach_variable: not a tuple; got Tensor"):
        pf.utils.checkpoint.detach_variable(pf.ones(2))
    assert pf.utils.checkpoint.detach_variable((pf.ones(2), 3))[1] == 3


def test_efficientnet_refuses_a_probability_out_of_range():
    with pytest.raises(ValueError, match="EfficientNet: stochastic_depth_prob is out of range; got -0.1"):
        pf.models.EfficientNet(0.2, 0.2, stochastic_depth_prob=-0.1)


def test_a_block_that_is_always_skipped_gives_zeros_and_no_nan():
    block = pf.models._blocks.StochasticDepth(1.0)
    assert block(pf.ones(2, 3)).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("name, shape", [("attn_mask", (3, 3)), ("key_padding_mask", (2, 3))])
def test_attention_refuses_masks_of_integers(name, shape):
    layer, x = pf.nn.MultiheadAttention(4, 2), pf.ones(3, 2, 4)
    with pytest.raises(RuntimeError, match=f"MultiheadAttention: {name} is no mask; got pyflame.int64"):
        layer(x, x, x, **{name: pf.zeros(*shape, dtype=pf.int64)})
    assert layer(x, x, x, **{name: pf.zeros(*shape, dtype=pf.bool)})[0].shape == (3, 2, 4)
