from itertools import pairwise

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from torch import nn
from transformers import (
    AlbertConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForTokenClassification,
    BartConfig,
    BartModel,
    BertConfig,
    BertModel,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
    XLMConfig,
    XLMModel,
)

from hf_ftstrategies.modeling.layer_map import LayerMap
from tests.modeling.architectures import TINY_CONFIGS, TINY_MODELS, tiny_inputs

# Written by hand from the models' code: parameter -> (depth, part). Three blocks, so the head is at 4.
EXPECTED = {
    "bert": {
        "bert.embeddings.word_embeddings.weight": (0, "embeddings"),
        "bert.embeddings.LayerNorm.bias": (0, "embeddings"),
        "bert.encoder.layer.0.attention.self.query.weight": (1, "block"),
        "bert.encoder.layer.2.output.LayerNorm.weight": (3, "block"),
        "bert.pooler.dense.weight": (4, "pooler"),
        "classifier.bias": (4, "head"),
    },
    "roberta": {
        "roberta.embeddings.position_embeddings.weight": (0, "embeddings"),
        "roberta.encoder.layer.1.intermediate.dense.bias": (2, "block"),
        "classifier.dense.weight": (4, "head"),
        "classifier.out_proj.weight": (4, "head"),
    },
    "xlm_roberta": {
        "roberta.embeddings.word_embeddings.weight": (0, "embeddings"),
        "roberta.encoder.layer.0.output.dense.weight": (1, "block"),
        "classifier.out_proj.bias": (4, "head"),
    },
    "electra": {
        "electra.embeddings.word_embeddings.weight": (0, "embeddings"),
        "electra.embeddings_project.weight": (0, "embeddings"),
        "electra.encoder.layer.2.output.dense.weight": (3, "block"),
        "classifier.dense.bias": (4, "head"),
    },
    "distilbert": {
        "distilbert.embeddings.position_embeddings.weight": (0, "embeddings"),
        "distilbert.transformer.layer.0.attention.q_lin.weight": (1, "block"),
        "distilbert.transformer.layer.2.ffn.lin2.bias": (3, "block"),
        "pre_classifier.weight": (4, "head"),
        "classifier.weight": (4, "head"),
    },
    "albert": {
        "albert.embeddings.word_embeddings.weight": (0, "embeddings"),
        "albert.encoder.embedding_hidden_mapping_in.weight": (0, "embeddings"),
        "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight": (1, "block"),
        "albert.pooler.weight": (2, "pooler"),
        "classifier.weight": (2, "head"),
    },
    "deberta_v2": {
        "deberta.embeddings.LayerNorm.weight": (0, "embeddings"),
        "deberta.encoder.rel_embeddings.weight": (0, "embeddings"),
        "deberta.encoder.LayerNorm.weight": (0, "embeddings"),
        "deberta.encoder.layer.1.attention.self.key_proj.weight": (2, "block"),
        "pooler.dense.weight": (4, "pooler"),
        "classifier.weight": (4, "head"),
    },
    "mpnet": {
        "mpnet.embeddings.word_embeddings.weight": (0, "embeddings"),
        "mpnet.encoder.relative_attention_bias.weight": (0, "embeddings"),
        "mpnet.encoder.layer.2.attention.attn.o.weight": (3, "block"),
        "classifier.dense.weight": (4, "head"),
    },
    "modernbert": {
        "model.embeddings.tok_embeddings.weight": (0, "embeddings"),
        "model.embeddings.norm.weight": (0, "embeddings"),
        "model.layers.0.attn.Wqkv.weight": (1, "block"),
        "model.layers.2.mlp.Wo.weight": (3, "block"),
        "model.final_norm.weight": (4, "final_norm"),
        "head.norm.weight": (4, "head"),
        "classifier.weight": (4, "head"),
    },
    "xlnet": {
        "transformer.mask_emb": (0, "embeddings"),
        "transformer.word_embedding.weight": (0, "embeddings"),
        "transformer.layer.0.rel_attn.r_r_bias": (1, "block"),
        "transformer.layer.2.ff.layer_2.weight": (3, "block"),
        "sequence_summary.summary.weight": (4, "pooler"),
        "logits_proj.weight": (4, "head"),
    },
    "gpt2": {
        "transformer.wte.weight": (0, "embeddings"),
        "transformer.wpe.weight": (0, "embeddings"),
        "transformer.h.1.attn.c_attn.weight": (2, "block"),
        "transformer.ln_f.weight": (4, "final_norm"),
        "score.weight": (4, "head"),
    },
    "llama": {
        "model.embed_tokens.weight": (0, "embeddings"),
        "model.layers.0.input_layernorm.weight": (1, "block"),
        "model.layers.2.mlp.down_proj.weight": (3, "block"),
        "model.norm.weight": (4, "final_norm"),
        "score.weight": (4, "head"),
    },
}

QUERY = "bert.encoder.layer.1.attention.self.query.weight"

# PEFT 0.21 and the first use of torch.compile in torch 2.13 warn; both are out of our hands.
peft_warns = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
compile_warns = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
each_architecture = pytest.mark.parametrize("name", TINY_MODELS)


class Wrapper(nn.Module):
    """What DDP does to names, without its processes."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def depths(model):
    return range(LayerMap.from_model(model).head_depth + 1)


def lora(model):
    targets = ["query", "word_embeddings"]
    return get_peft_model(model, LoraConfig(r=2, target_modules=targets, modules_to_save=["classifier"]))


def test_all_architectures_have_a_table():
    assert EXPECTED.keys() == TINY_MODELS.keys()


@each_architecture
def test_named_examples_are_where_the_architecture_has_them(name):
    layer_map = LayerMap.from_model(TINY_MODELS[name]())
    assert {p: (layer_map.depth_of(p), layer_map.part_of(p)) for p in EXPECTED[name]} == EXPECTED[name]


@each_architecture
def test_every_parameter_has_exactly_one_depth(name):
    model = TINY_MODELS[name]()
    layer_map = LayerMap.from_model(model)
    at_depths = [name for depth in depths(model) for name in layer_map.parameters_at(depth)]
    assert sorted(at_depths) == sorted(name for name, _ in model.named_parameters())


@each_architecture
def test_parameters_at_a_depth_are_those_of_its_modules(name):
    layer_map = LayerMap.from_model(TINY_MODELS[name]())
    for depth, block in enumerate(layer_map.blocks, start=1):
        assert set(layer_map.parameters_at(depth).values()) == set(block.parameters())
    in_modules = {p for module in layer_map.embeddings for p in module.parameters()}
    on_containers = {"transformer.mask_emb"}  # XLNet's hangs on the base model itself
    at_zero = {p for name, p in layer_map.parameters_at(0).items() if name not in on_containers}
    assert at_zero == in_modules


@each_architecture
def test_blocks_are_equally_large(name):
    layer_map = LayerMap.from_model(TINY_MODELS[name]())
    sizes = [sum(p.numel() for p in block.parameters()) for block in layer_map.blocks]
    if name == "modernbert":  # has no attn_norm in its first block, because embeddings.norm comes just before
        sizes[0] += 32
    assert len(set(sizes)) == 1
    assert len(sizes) == (1 if name == "albert" else 3)


@each_architecture
def test_lower_depths_run_first(name):
    model = TINY_MODELS[name]()
    layer_map = LayerMap.from_model(model)
    ran = []
    for path, module in model.named_modules():
        own = [f"{path}.{p}" for p, _ in module.named_parameters(recurse=False)]
        if own:
            depth = layer_map.depth_of(own[0].removeprefix("."))
            module.register_forward_pre_hook(lambda *_, depth=depth: ran.append(depth))
    model(**tiny_inputs())
    assert all(before <= after for before, after in pairwise(ran))
    assert set(ran) == set(depths(model))


@each_architecture
def test_base_model_without_head_has_the_same_depths(name):
    config = TINY_CONFIGS[name]()
    base = AutoModel.from_config(config)
    whole = TINY_MODELS[name]()
    base_map, whole_map = LayerMap.from_model(base), LayerMap.from_model(whole)
    prefix = whole.base_model_prefix
    shared = {f"{prefix}.{p}" for p, _ in base.named_parameters()} & {p for p, _ in whole.named_parameters()}
    assert all(whole_map.depth_of(p) == base_map.depth_of(p.removeprefix(f"{prefix}.")) for p in shared)
    assert base_map.head == []


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "deberta_v2"])
def test_token_classifier_has_a_head(name):
    model = AutoModelForTokenClassification.from_config(TINY_CONFIGS[name]())
    assert LayerMap.from_model(model).head == [model.classifier]


@pytest.mark.parametrize(
    ("name", "pooler", "head"),
    [
        ("bert", "bert.pooler", ["classifier"]),
        ("roberta", None, ["classifier"]),
        ("distilbert", None, ["pre_classifier", "classifier"]),
        ("albert", "albert.pooler", ["classifier"]),
        ("deberta_v2", "pooler", ["classifier"]),
        ("modernbert", None, ["head", "classifier"]),
        ("xlnet", "sequence_summary", ["logits_proj"]),
    ],
)
def test_pooler_and_head_modules(name, pooler, head):
    model = TINY_MODELS[name]()
    layer_map = LayerMap.from_model(model)
    assert layer_map.pooler is (model.get_submodule(pooler) if pooler else None)
    assert layer_map.head == [model.get_submodule(path) for path in head]


def test_tied_decoder_counts_once_with_the_embeddings():
    model = AutoModelForMaskedLM.from_config(TINY_CONFIGS["bert"]())
    layer_map = LayerMap.from_model(model)
    assert layer_map.depth_of("cls.predictions.decoder.weight") == 0  # the second name of
    assert "bert.embeddings.word_embeddings.weight" in layer_map.parameters_at(0)
    assert layer_map.depth_of("cls.predictions.bias") == layer_map.head_depth
    assert sum(len(layer_map.parameters_at(d)) for d in depths(model)) == len(list(model.parameters()))


def test_tied_language_model_head_does_not_lift_the_embeddings():
    model = AutoModelForCausalLM.from_config(TINY_CONFIGS["gpt2"]())
    assert LayerMap.from_model(model).part_of("lm_head.weight") == "embeddings"


def test_albert_shares_one_block():
    layer_map = LayerMap.from_model(TINY_MODELS["albert"]())
    assert (layer_map.shared_blocks, layer_map.num_blocks, layer_map.head_depth) == (True, 1, 2)
    assert "share" in layer_map.describe()
    assert not LayerMap.from_model(TINY_MODELS["bert"]()).shared_blocks


def test_albert_with_two_groups_has_two_blocks():
    config = AlbertConfig(**{**TINY_CONFIGS["albert"]().to_dict(), "num_hidden_layers": 4, "num_hidden_groups": 2})
    assert LayerMap.from_model(AutoModel.from_config(config)).num_blocks == 2


def test_names_of_depths_and_description():
    layer_map = LayerMap.from_model(TINY_MODELS["bert"]())
    names = ["embeddings", "block 1", "block 2", "block 3", "head"]
    assert [layer_map.name_of(depth) for depth in range(5)] == names
    assert [line[5:17].strip() for line in layer_map.describe().splitlines()] == names


@pytest.mark.parametrize("depth", [-1, 5])
def test_unknown_depth_is_an_error(depth):
    layer_map = LayerMap.from_model(TINY_MODELS["bert"]())
    for ask in (layer_map.name_of, layer_map.parameters_at):
        with pytest.raises(ValueError, match=f"no depth {depth}: depths are 0 .* 4"):
            ask(depth)


@peft_warns
@compile_warns
@pytest.mark.parametrize(
    "wrap",
    [
        Wrapper,
        torch.compile,
        lora,
        lambda model: Wrapper(torch.compile(model)),
        lambda model: torch.compile(Wrapper(model)),
        lambda model: Wrapper(lora(model)),
        lambda model: torch.compile(Wrapper(lora(model))),
    ],
    ids=["ddp", "compile", "lora", "ddp-compile", "compile-ddp", "ddp-lora", "compile-ddp-lora"],
)
def test_wrapped_and_bare_model_know_each_others_names(wrap):
    bare = TINY_MODELS["bert"]()
    bare_map, bare_names = LayerMap.from_model(bare), [name for name, _ in bare.named_parameters()]
    bare_depths = [bare_map.depth_of(name) for name in bare_names]
    wrapped = wrap(bare)
    wrapped_map = LayerMap.from_model(wrapped)
    assert [wrapped_map.depth_of(name) for name in bare_names] == bare_depths
    for name, _ in wrapped.named_parameters():
        assert bare_map.depth_of(name) == wrapped_map.depth_of(name)
    listed = [name for depth in range(5) for name in wrapped_map.parameters_at(depth)]
    assert sorted(listed) == sorted(name for name, _ in wrapped.named_parameters())


@peft_warns
def test_lora_names():
    layer_map = LayerMap.from_model(lora(TINY_MODELS["bert"]()))
    query = "base_model.model.bert.encoder.layer.1.attention.self.query"
    words = "base_model.model.bert.embeddings.word_embeddings"
    classifier = "base_model.model.classifier"
    expected = {
        f"{query}.base_layer.weight": 2,
        f"{query}.lora_A.default.weight": 2,
        f"{words}.lora_embedding_A.default": 0,
        f"{classifier}.original_module.weight": 4,
        f"{classifier}.modules_to_save.default.bias": 4,
    }
    assert {name: layer_map.depth_of(name) for name in expected} == expected
    listed = {name for depth in range(5) for name in layer_map.parameters_at(depth)}
    assert listed >= expected.keys()


@compile_warns
def test_compiled_blocks_and_base_model():
    model = TINY_MODELS["bert"]()
    model.bert.encoder.layer[1] = torch.compile(model.bert.encoder.layer[1])
    model.bert = torch.compile(model.bert)
    layer_map = LayerMap.from_model(model)
    assert "_orig_mod" in next(iter(layer_map.parameters_at(2)))
    assert (layer_map.depth_of(QUERY), layer_map.depth_of("classifier.weight")) == (2, 4)
    assert layer_map.head == [model.classifier]


def test_replaced_parameter_is_looked_up_afresh():
    model = TINY_MODELS["bert"]()
    layer_map = LayerMap.from_model(model)
    model.classifier.weight = nn.Parameter(torch.zeros(3, 32))
    assert layer_map.parameters_at(4)["classifier.weight"] is model.classifier.weight


def test_encoder_of_an_encoder_decoder_is_accepted():
    encoder = T5EncoderModel(T5Config(vocab_size=100, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2))
    layer_map = LayerMap.from_model(encoder)
    assert (layer_map.num_blocks, layer_map.part_of("encoder.final_layer_norm.weight")) == (2, "final_norm")


def tiny_t5():
    return T5ForConditionalGeneration(T5Config(vocab_size=100, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2))


def tiny_bart():
    sizes = {"encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    return BartModel(BartConfig(vocab_size=100, d_model=32, max_position_embeddings=64, **sizes, **heads))


def pruned_without_telling_the_config():
    model = BertModel(TINY_CONFIGS["bert"]())
    model.encoder.layer = model.encoder.layer[:2]
    return model


def with_unknown_module_after_the_blocks():
    model = BertModel(TINY_CONFIGS["bert"]())
    model.projection = nn.Linear(32, 32)
    return model


def with_parameters_outside_the_model():
    return get_peft_model(TINY_MODELS["bert"](), PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2))


@peft_warns
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (tiny_t5, r"encoder-decoder .*'encoder.block' \(2\), 'decoder.block' \(2\).*Use a model with one"),
        (tiny_bart, r"encoder-decoder .*'encoder.layers' \(2\), 'decoder.layers' \(3\)"),
        (lambda: nn.Linear(2, 2), "needs a Transformers model .* got Linear"),
        (lambda: Wrapper(nn.Linear(2, 2)), "needs a Transformers model .* got Wrapper"),
        (lambda: XLMModel(XLMConfig(vocab_size=100, emb_dim=32, n_layers=2, n_heads=2)), "but has 4.*'ffns'"),
        (pruned_without_telling_the_config, r"\(3\), but has 0.*'encoder.layer' \(2\).*num_hidden_layers"),
        (with_unknown_module_after_the_blocks, "cannot tell the depth of 'projection' in BertModel"),
        (with_parameters_outside_the_model, "outside the BertFor.*'prompt_encoder"),
    ],
)
def test_models_without_one_clear_depth_are_errors(make, message):
    with pytest.raises(ValueError, match=message):
        LayerMap.from_model(make())


def test_misspelt_parameter_gets_a_suggestion():
    layer_map = LayerMap.from_model(TINY_MODELS["bert"]())
    with pytest.raises(ValueError, match=f"no parameter 'module.bert.encoder.*Did you mean '{QUERY}'"):
        layer_map.depth_of("module.bert.encoder.layer.1.attention.self.qeury.weight")
    with pytest.raises(ValueError, match=r"has no parameter 'xyzzy'\.$"):
        layer_map.part_of("xyzzy")


def test_one_block_is_a_model_too():
    config = BertConfig(**{**TINY_CONFIGS["bert"]().to_dict(), "num_hidden_layers": 1})
    assert LayerMap.from_model(BertModel(config)).num_blocks == 1
