# SPDX-License-Identifier: Apache-2.0
"""transformers: language models of types that the seed chooses, from their configuration classes made
small. Randomly initialized; nothing is downloaded."""
import random

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from torch_support import Captured, TorchWork, loader, quiet_compiler

WORDS = 199
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
         "head_dim": 16, "intermediate_size": 128, "vocab_size": WORDS, "max_position_embeddings": 256,
         "is_decoder": True, "attention_dropout": 0.0, "hidden_dropout": 0.0}
MOST_PARAMETERS = 8_000_000
MOST_TRIED = 60


def small_configuration(name):
    configuration = transformers.CONFIG_MAPPING[name]()
    for key, value in SMALL.items():
        if hasattr(configuration, key):
            setattr(configuration, key, value)
    for key in ("pad_token_id", "bos_token_id", "eos_token_id"):
        if getattr(configuration, key, None) is not None:
            setattr(configuration, key, 0)
    return configuration


def models(work, chance, count, fits):
    """Yields models of different types for which `fits(model)` works on the CPU, so that the choice
    depends on nothing of the card."""
    names = sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    chance.shuffle(names)
    found = 0
    for name in names[:MOST_TRIED]:
        if found == count:
            return
        try:
            configuration = small_configuration(name)
            with torch.device("meta"):
                size = sum(one.numel() for one in
                           transformers.AutoModelForCausalLM.from_config(configuration).parameters())
            if size > MOST_PARAMETERS:
                continue
            torch.manual_seed(work.seed % (1 << 31))
            model = transformers.AutoModelForCausalLM.from_config(configuration)
            model.eval()
            fits(model)
        except Exception:  # a type that cannot be made small this way
            continue
        found += 1
        yield name, model.to(work.device)
    if found == 0:
        raise RuntimeError(f"none of {MOST_TRIED} types of models can be made small")


def words_for(work, rows, columns):
    generator = torch.Generator().manual_seed(work.seed % (1 << 31))
    return torch.randint(1, WORDS, (rows, columns), generator=generator).to(work.device)


def forward_works(model):
    assert model(torch.ones(2, 16, dtype=torch.long)).logits.shape == (2, 16, WORDS)


def generates(model):
    model.generate(torch.ones(1, 4, dtype=torch.long), max_new_tokens=2, do_sample=False, pad_token_id=0)


def train_step(work, name, model, optimizer, words):
    logits = model(words).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, WORDS), words[:, 1:].reshape(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    work.add(f"{name}, loss", loss)
    work.held.churn()


def plain(work, chance):
    for name, model in models(work, chance, 3, forward_works):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for step in range(4):
            try:
                train_step(work, f"{name}, step {step}", model, optimizer, words_for(work, 4, 24 + 8 * step))
            except Exception as error:
                work.outputs.raised(f"{name}, step {step}", error)
        work.add(f"{name}, weights", list(model.parameters()))


def graphs(work, chance):
    """Captures forward passes. A type that cannot be captured is one result, natively as well."""
    captured_models = 0
    given = words_for(work, 4, 32)
    for name, model in models(work, chance, 4, forward_works):
        try:
            with torch.no_grad():
                captured = Captured(work, lambda model=model: model(given, use_cache=False).logits)
        except Exception as error:
            work.outputs.raised(f"{name}, capture", error)
            continue
        captured_models += 1
        for number in range(4):
            given.copy_((given * 7 + number) % (WORDS - 1) + 1)
            work.held.churn()
            work.add(f"{name}, replay {number}", captured.replay().clone())
    if captured_models == 0:
        raise RuntimeError("no model could be captured")


def compiled(work, chance):
    with quiet_compiler():
        for name, model in models(work, chance, 1, forward_works):
            function = torch.compile(model)
            for number in range(2):
                try:
                    with torch.no_grad():
                        work.add(f"compiled {name}, call {number}", function(words_for(work, 2 + number, 32)).logits)
                except Exception as error:
                    work.outputs.raised(f"compiled {name}", error)
                work.held.churn()


def loaders(work, chance):
    for name, model in models(work, chance, 2, forward_works):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for number, rows in enumerate(loader(work, 96, 24, 12)):
            words = (rows.to(work.device, non_blocking=True).abs() * 50).long() % (WORDS - 1) + 1
            try:
                train_step(work, f"{name}, batch {number}", model, optimizer, words)
            except Exception as error:
                work.outputs.raised(f"{name}, batch {number}", error)
        work.add(f"{name}, weights", list(model.parameters()))


def generation(work, chance):
    for name, model in models(work, chance, 3, generates):
        for number, sampled in enumerate((False, True)):
            torch.manual_seed(work.seed % (1 << 31))
            try:
                with torch.no_grad():
                    work.add(f"{name}, text {number}", model.generate(
                        words_for(work, 3, 12), max_new_tokens=32, do_sample=sampled, pad_token_id=0))
            except Exception as error:
                work.outputs.raised(f"{name}, text {number}", error)
            work.held.churn()


USES = {"plain": plain, "graphs": graphs, "compile": compiled, "loaders": loaders, "generation": generation}


def run(asked, outputs):
    transformers.utils.logging.set_verbosity_error()
    work = TorchWork(asked, outputs)
    USES[asked.use](work, random.Random(asked.seed))
    return work.finish(f"transformers {transformers.__version__}, torch {torch.__version__}")
