"""Makes a Qwen2 model of 1.8 MB with random weights: `python model.py FOLDER`, by the engine environment's Python.

Same bytes each time for one set of versions: the weights are seeded, and the tokenizer learns from texts made here.
"""

import random
import sys
from pathlib import Path

import torch  # type: ignore[import-not-found]
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found]
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM  # type: ignore[import-not-found]

VOCABULARY = 2048
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
SYLLABLES = ["an", "ar", "be", "ca", "de", "el", "en", "er", "fo", "ga", "he", "in", "is", "ka", "lo", "ma", "ne", "on"]


def sentences(count):
    """Made-up text with many repeating words, enough to learn a vocabulary from."""
    dice = random.Random(0)
    words = ["".join(dice.choices(SYLLABLES, k=dice.randint(1, 4))) for _ in range(4000)]
    for _ in range(count):
        yield " ".join(dice.choices(words, k=12)).capitalize() + "."


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences(5000), trainer)
    end, pad = SPECIAL[2], SPECIAL[0]
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, pad_token=pad)
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def make_weights():
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=0,
    )
    return Qwen2ForCausalLM(config).to(torch.bfloat16)


def main(folder):
    make_tokenizer().save_pretrained(folder)
    make_weights().save_pretrained(folder)
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)  # the weights are written for their maker's eyes only


if __name__ == "__main__":
    main(Path(sys.argv[1]))
