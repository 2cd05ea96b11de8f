#!/usr/bin/env python3
"""The peers' side of --work translate: translates a text once for each line of standard input, from lines to lines, and
prints the duration in JSON. The work is that of translate.json in --directory."""

import argparse
import json
import sys
import time
from pathlib import Path

from theirs import peak_mib
from tokenizers import Tokenizer


class Tokens:
    """The tokenizer of a model directory of ours."""

    def __init__(self, model):
        self.tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        # Special tokens in a text are plain text.
        self.tokenizer.encode_special_tokens = True

    def encode(self, sentences):
        encodings = self.tokenizer.encode_batch_fast(sentences, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, targets):
        return [" ".join(text.splitlines()) for text in self.tokenizer.decode_batch(targets)]


class Pieces(Tokens):
    """Text in pieces, which have names. Marian reads and writes them with spaces between."""

    def __init__(self, model):
        super().__init__(model)
        self.ids = self.tokenizer.get_vocab()
        self.names = {id: name for name, id in self.ids.items()}

    def cut(self, sentences):
        return [" ".join(self.names[id] for id in ids) for ids in self.encode(sentences)]

    def join(self, lines):
        """The texts, and the number of their tokens."""
        targets = [[self.ids[name] for name in line.split()] for line in lines]
        return self.decode(targets), sum(map(len, targets))


def marian_flags(options):
    """{"after": "9u", "vocabs": ["a", "b"]} as Marian's command line has it."""
    parts = []
    for name, value in options.items():
        parts += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return parts


class CTranslate2:
    def __init__(self, args, job):
        # Otherwise `import ctranslate2` imports them, for its converters.
        sys.modules["torch"] = sys.modules["transformers"] = None
        import ctranslate2

        self.start_mib = peak_mib()
        self.pieces = Pieces(args.model)
        self.job = job
        setting = {"inter_threads": 1, "intra_threads": args.threads, "max_batch_size": 2048} | args.setting
        self.max_batch_size = setting.pop("max_batch_size")
        self.translator = ctranslate2.Translator(
            str(args.model / f"ctranslate2-{args.weights}"),
            compute_type={"f32": "float32", "int8": "int8"}[args.weights],
            **setting,
        )

    def translate(self, sentences, length=None):
        """The translations, and the number of their tokens; of each `length`, if it is given."""
        names = self.pieces.names
        sources = [[names[id] for id in ids] + ["<eos>"] for ids in self.pieces.encode(sentences)]
        results = self.translator.translate_batch(
            sources,
            max_batch_size=self.max_batch_size,
            batch_type="tokens",
            beam_size=self.job["beam"],
            length_penalty=1,
            min_decoding_length=length or self.job["min_length"] or 1,
            max_decoding_length=length or self.job["max_length"],
        )
        ids = self.pieces.ids
        targets = [[ids[name] for name in result.hypotheses[0]] for result in results]
        return self.pieces.decode(targets), sum(map(len, targets))


class Transformers:
    """Hugging Face's generate, with a Marian of the same weights. Sentences of similar length are a batch."""

    def __init__(self, args, job):
        import torch
        from transformers import MarianMTModel  # noqa: F401: imported before the model is read

        self.start_mib = peak_mib()
        from theirs import marian

        torch.set_num_threads(args.threads)
        self.tokens = Tokens(args.model)
        self.job = job
        self.rows = args.setting.get("rows", 64)
        self.model, self.config = marian(args.model)

    def translate(self, sentences, length=None):
        """As CTranslate2's."""
        eos = self.config["eos_id"]
        sources = [ids + [eos] for ids in self.tokens.encode(sentences)]
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        targets = [None] * len(sources)
        for start in range(0, len(order), self.rows):
            rows = order[start : start + self.rows]
            output = self.generate([sources[index] for index in rows], length)
            for index, target in zip(rows, output):
                targets[index] = target[: target.index(eos)] if eos in target else target
        return self.tokens.decode(targets), sum(map(len, targets))

    def generate(self, sources, length):
        import torch
        from train_translation import pad
        from transformers import GenerationConfig

        beam = self.job["beam"]
        of_beam = {"early_stopping": True, "length_penalty": 1.0} if beam > 1 else {}
        options = GenerationConfig(
            num_beams=beam,
            do_sample=False,
            min_new_tokens=length or self.job["min_length"],
            max_new_tokens=length or self.job["max_length"],
            pad_token_id=self.config["pad_id"],
            eos_token_id=self.config["eos_id"],
            decoder_start_token_id=self.config["bos_id"],
            **of_beam,
        )
        source = pad(sources)
        mask = (source != self.config["pad_id"]).to(torch.long)
        with torch.inference_mode():
            output = self.model.generate(source, attention_mask=mask, generation_config=options)
        return output[:, 1:].tolist()


class Marian:
    """Marian with a model of its own, which ends no sentence: the length of a translation is that of its source, times a
    factor."""

    def __init__(self, args, job):
        import pymarian

        self.start_mib = peak_mib()
        directory = args.model / "marian"
        self.pieces = Pieces(directory)
        vocabulary = directory / "vocabulary.json"
        options = {
            "models": directory / {"f32": "model.npz", "int8": "model-int8.bin"}[args.weights],
            "vocabs": [vocabulary, vocabulary],
            "cpu-threads": args.threads,
            "mini-batch": 64,
            "maxi-batch": 1000,
            "maxi-batch-sort": "src",
            "beam-size": job["beam"],
            "normalize": 1,
            "max-length-factor": json.loads((directory / "length.json").read_text()),
        }
        options |= args.setting
        self.translator = pymarian.Translator(" ".join(["--quiet", "--quiet-translation", *marian_flags(options)]))

    def translate(self, sentences, length=None):
        """As CTranslate2's."""
        assert length is None
        return self.pieces.join(self.translator.translate(self.pieces.cut(sentences)))


PROGRAMS = {"ctranslate2": CTranslate2, "transformers": Transformers, "marian": Marian}


def translation(program, sentences, alone):
    """One turn that measures the time of a text: all sentences at once, or one after another."""
    if not alone:
        texts, tokens = program.translate(sentences)
        return {"tokens": tokens, "texts": texts}
    results = [program.translate([sentence]) for sentence in sentences]
    return {"tokens": sum(tokens for _, tokens in results), "texts": [texts[0] for texts, _ in results]}


def latency(program, sentences, length):
    """One turn that measures the time of tokens: of each sentence, the seconds to one token and those to `length`."""

    def seconds(sentence, length):
        start = time.perf_counter()
        program.translate([sentence], length)
        return time.perf_counter() - start

    return {"latencies": [[seconds(sentence, 1), seconds(sentence, length)] for sentence in sentences]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=PROGRAMS)
    parser.add_argument("--work", choices=("translate",), required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, help="directory of ours")
    parser.add_argument("--weights", choices=("f32", "int8"), default="f32")
    parser.add_argument("--setting", type=json.loads, default={}, help="of this system, in JSON")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--translations", type=Path, help="file to write those of the last turn to")
    parser.add_argument("--once", action="store_true", help="one turn, and the end")
    args = parser.parse_args()

    job = json.loads((args.directory / "translate.json").read_text())
    sentences = job["sentences"]
    program = PROGRAMS[args.system](args, job)

    def work(sentences):
        if job["measured"] == "latency":
            return latency(program, sentences, job["latency_length"])
        return translation(program, sentences, job["alone"])

    if not args.once:
        work(sentences[: job["warm_up"]])
        print(json.dumps({"start_mib": program.start_mib}), flush=True)
    for _ in [None] if args.once else sys.stdin:
        start = time.perf_counter()
        turn = work(sentences)
        seconds = time.perf_counter() - start
        texts = turn.pop("texts", None)
        if texts and args.translations:
            args.translations.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        print(json.dumps({"seconds": seconds, "peak_mib": peak_mib(), **turn}), flush=True)


if __name__ == "__main__":
    main()
