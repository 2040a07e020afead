"""Module.enable_gradient_checkpointing and pf.checkpoint_policy: same gradients, less memory."""
import copy
import dataclasses
import pickle

import pytest

import pyflame as pf
from pyflame import nn
from pyflame.models.gpt2 import GPT2Config, GPT2LMHeadModel

F = nn.functional


def gpt(layers=3, dropout=0.1):
    pf.manual_seed(1)
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=layers, n_head=2, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=0.0))


def gradients(model, precision=None):
    ids = pf.arange(32).reshape(2, 16) % 64
    model.zero_grad()
    pf.manual_seed(5)
    with pf.autocast("cpu", dtype=pf.bfloat16, enabled=precision is not None):
        loss = F.cross_entropy(model(ids).reshape(-1, 64), ids.reshape(-1))
    loss.backward()
    return [loss.item()] + [p.grad.tolist() for p in model.parameters()]


@pytest.mark.parametrize("precision", [None, "bfloat16"])
def test_gradients_are_the_same(precision):
    """With dropout, nested results (a block of GPT-2 returns keys and values, too), and mixed precision, which backward() is outside of."""
    model = gpt()
    kept = gradients(model, precision)
    assert model.enable_gradient_checkpointing() == [f"transformer.h.{i}" for i in range(3)]
    assert gradients(model, precision) == kept
    model.disable_gradient_checkpointing()
    assert "forward" not in model.transformer.h[0].__dict__
    assert gradients(model, precision) == kept


def test_it_runs_each_block_twice_in_training_only():
    model, calls = gpt(), []
    for block in model.transformer.h:
        block.ln_1.register_forward_hook(lambda *_: calls.append(1))
    model.enable_gradient_checkpointing(["transformer.h.1"])
    gradients(model)
    assert len(calls) == 4
    calls.clear()
    model.eval()
    gradients(model)
    assert len(calls) == 3


def test_copies_and_files_keep_it():
    model = gpt()
    model.enable_gradient_checkpointing()
    twin = copy.deepcopy(model)
    with pf.no_grad():
        for p in model.parameters():
            p.zero_()
    plain = gpt()
    plain.load_state_dict(twin.state_dict())
    assert list(twin.state_dict()) == list(plain.state_dict())
    assert gradients(twin) == gradients(plain)
    encoder, x = nn.Sequential(*[nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(2)]), pf.randn(2, 4, 8)
    encoder.enable_gradient_checkpointing()
    again = pickle.loads(pickle.dumps(encoder))
    assert again[1].forward.module is again[1]
    for m in (encoder, again):
        m(x).pow(2).sum().backward()
    assert [p.grad.tolist() for p in again.parameters()] == [p.grad.tolist() for p in encoder.parameters()]


def test_a_plan_counts_it():
    ids = pf.zeros(8, 16, dtype=pf.int64)
    model = gpt(layers=8)
    kept = pf.memory.estimate(model, ids)
    model.enable_gradient_checkpointing()
    less = pf.memory.estimate(model, ids)
    assert less.activations < 0.4 * kept.activations and less.peak < kept.peak
    assert model.transformer.h[0].forward.module is model.transformer.h[0]


def test_what_has_no_blocks_says_so():
    with pytest.raises(ValueError, match="enable_gradient_checkpointing: Linear has no repeated blocks"):
        nn.Linear(2, 2).enable_gradient_checkpointing()
    with pytest.raises(AttributeError, match="has no child 'nothing'"):
        gpt().enable_gradient_checkpointing(["nothing"])
    model = nn.Sequential(nn.Linear(2, 2))
    model[0].forward = lambda x: x
    with pytest.raises(ValueError, match="enable_gradient_checkpointing: forward of Linear was replaced on the object"):
        model.enable_gradient_checkpointing(["0"])


def real_peak(model, ids):
    """Bytes that the second step of a training takes at most, the model included."""
    own = sum(t.numel() * t.element_size() for t in [*model.parameters(), *model.buffers(), ids])
    pf.memory.trim("cpu")
    before = pf.memory.stats("cpu")["allocated"]
    adam = pf.optim.AdamW(model.parameters())
    for _ in range(2):
        pf.memory.trim("cpu")
        pf.memory.reset_peak("cpu")
        adam.zero_grad()
        model(ids).sum().backward()
        adam.step()
        pf.synchronize()
    return pf.memory.stats("cpu")["peak_allocated"] - before + own


def test_a_policy_meets_its_budget():
    ids, model = pf.zeros(16, 16, dtype=pf.int64), gpt(layers=8)
    kept = pf.memory.estimate(model, ids)
    least = pf.checkpoint_policy(model, ids, bytes=kept.peak)
    assert list(least) == [] and least.recompute == 0 and least.plan.peak == kept.peak
    budget = int(0.8 * kept.peak)
    policy = pf.checkpoint_policy(model, ids, bytes=budget)
    assert 0 < len(policy) < 8 and policy.plan.peak <= budget < policy.plan_without.peak == kept.peak
    assert policy.modules == tuple(sorted(policy.modules)) and 0 < policy.recompute < 1 / 3
    assert "blocks are recomputed" in str(policy) and "more FLOPs" in str(policy)
    assert "forward" not in model.transformer.h[0].__dict__  # the model is as it was
    before = real_peak(model, ids)
    assert policy.apply(model) is model
    after = real_peak(model, ids)
    assert after <= 1.1 * budget and after < before
    assert pf.memory.estimate(model, ids).peak == policy.plan.peak


def test_a_policy_of_the_model_in_a_wrapper():
    ids, model = pf.zeros(4, 16, dtype=pf.int64), gpt(layers=2)
    policy = pf.checkpoint_policy(model, ids, bytes=int(0.9 * pf.memory.estimate(model, ids).peak))
    assert len(policy)
    for wrapper in (pf.nn.parallel.DistributedDataParallel, pf.nn.DataParallel):
        ddp = wrapper(model)
        assert policy.apply(ddp) is ddp and all("forward" in model.get_submodule(name).__dict__ for name in policy)
        ddp.disable_gradient_checkpointing()
        assert not any("forward" in m.__dict__ for m in model.modules())
    own = dataclasses.replace(policy, modules=tuple(f"module.{name}" for name in policy))  # a plan of the wrapped model
    assert own.apply(ddp) is ddp and all("forward" in model.get_submodule(name).__dict__ for name in policy)


def test_all_blocks_cost_about_a_third_more():
    ids, model = pf.zeros(16, 16, dtype=pf.int64), gpt(layers=8)
    with pytest.raises(ValueError, match=r"checkpoint_policy: the step does not fit with all 8 blocks recomputed; got 1.0 KiB; expected at least [\d.]+ MiB") as e:
        pf.checkpoint_policy(model, ids, bytes=1024)
    least = str(e.value).split("at least ")[1].split(";")[0]
    number = float(least.split()[0])
    policy = pf.checkpoint_policy(model, ids, bytes=f"{number * 1.02:.3f}MiB")
    assert len(policy) >= 6 and 0.15 < policy.recompute < 1 / 3  # a forward pass is a third of a step; the head is not recomputed


def test_a_policy_of_named_modules_and_of_a_function():
    ids = pf.zeros(16, 16, dtype=pf.int64)
    kept = pf.memory.estimate(gpt, ids)
    policy = pf.checkpoint_policy(gpt, ids, bytes=kept.peak - 1, modules=["transformer.h.2", "transformer.h.0"])
    assert set(policy) <= {"transformer.h.0", "transformer.h.2"} and len(policy) >= 1
    model = gpt()
    assert model.enable_gradient_checkpointing(policy) == list(policy)
    with pytest.raises(ValueError, match="checkpoint_policy: Linear has no repeated blocks"):
        pf.checkpoint_policy(nn.Linear(2, 2), pf.zeros(1, 2), bytes=10)
    with pytest.raises(ValueError, match="memory: not a size; got 'much'"):
        pf.checkpoint_policy(gpt, ids, bytes="much")
