"""--work translate: a held-out file translated by ours and by the peers, from lines of text to lines of text.

Measured for each model and number of threads: the whole file at once, which each system sorts into batches as it likes;
sentences one after another; the time to the first and to each further token of one sentence; and whole processes, from
their start to their end. All systems have the same weights, the same tokenizer and the same options of search, and take
turns. CTranslate2 and Marian have the best of several settings, which are tried first. Marian's models are its own
(marian.py), so that it has no BLEU, and no time of a token.
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import text
from marian import write_model
from models import base_model, convert, mean_length
from results import Results
from systems import HERE, PAUSE, System, build, build_program, environment, ours, take_turns, theirs
from translate_tables import print_tables

# Tokens of a translation, at most: none of the references has as many.
MAX_LENGTH = 128
# Sentences that are translated one after another.
ALONE = 100
# Tokens of a translation by which the time of a further token is measured.
LATENCY_LENGTH = 33
WARM_UP = 50
# Sentences by which settings of CTranslate2 are chosen; None for all.
CHOSEN_BY = {"small": None, "base": 200}
# Those by which its library for products is chosen.
LIBRARY_CHOSEN_BY = {"small": 100, "base": 40}
BATCH_TOKENS = (2048, 1024, 4096)
# Sentences of a batch, of Marian.
MARIAN_ROWS = (64, 16, 32, 128)
LIBRARIES = (
    {},
    {"CT2_USE_MKL": "0"},
    {"CT2_USE_MKL": "1"},
    {"CT2_USE_MKL": "1", "CT2_PACKED_GEMM": "1"},
)


@dataclass(frozen=True)
class Contender:
    """A system with its precision."""

    name: str
    system: str
    weights: str
    backend: str = ""

    def key(self):
        """As --systems has it."""
        return f"{self.backend or self.system}-{self.weights}"

    def is_ours(self):
        return self.system == "ours"

    def has_bleu(self, model, job):
        """Not where weights are random: in Marian's models, and in those that end no sentence."""
        return self.system != "marian" and not model.length and job.measured == "text"

    def does(self, job):
        """Marian cannot be told the number of tokens."""
        return self.system != "marian" or job.measured == "text"


CONTENDERS = [
    Contender("ours, flex, f32", "ours", "f32", "flex"),
    Contender("ours, flex, int8", "ours", "int8", "flex"),
    Contender("ours, ndarray, f32", "ours", "f32", "ndarray"),
    Contender("ours, flex, not packed", "ours", "plain", "flex"),
    Contender("ours, tch, not packed", "ours", "plain", "tch"),
    Contender("CTranslate2, f32", "ctranslate2", "f32"),
    Contender("CTranslate2, int8", "ctranslate2", "int8"),
    Contender("Marian, f32", "marian", "f32"),
    Contender("Marian, int8", "marian", "int8"),
    Contender("Hugging Face, f32", "transformers", "f32"),
]
DEFAULT_SYSTEMS = [contender.key() for contender in CONTENDERS if contender.weights != "plain"]


@dataclass(frozen=True)
class Job:
    """One kind of work: a column of the tables. `measured` is `text` or `latency`."""

    model: str
    threads: int
    beam: int = 1
    alone: bool = False
    measured: str = "text"


class Bench:
    """The measurements of one run."""

    def __init__(self, args, contenders, folder, program, features, file, results):
        self.args = args
        self.contenders = contenders
        self.folder = folder
        self.program = program
        self.features = features
        self.file = file
        self.results = results
        self.log = open(folder / "log", "w+")
        # By contender and job.
        self.settings = {}

    def write_job(self, model, job, sentences):
        """Writes translate.json into a folder of its own, and returns the folder."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        content = {
            "measured": job.measured,
            "sentences": sentences,
            "beam": job.beam,
            "alone": job.alone,
            "min_length": model.length or 0,
            "max_length": model.length or MAX_LENGTH,
            "latency_length": LATENCY_LENGTH,
            "warm_up": min(WARM_UP, len(sentences)),
        }
        (folder / "translate.json").write_text(json.dumps(content), encoding="utf-8")
        return folder

    def directory(self, contender, model):
        return model.int8 if contender.is_ours() and contender.weights == "int8" else model.directory

    def command(self, contender, model, job, folder, setting):
        """The program that does the work once for each line of its standard input."""
        flags = ["--model", str(self.directory(contender, model)), "--weights", contender.weights]
        flags += ["--translations", str(folder / f"{contender.name}.txt")]
        if contender.is_ours():
            return ours(self.features, contender.backend, "translate", folder, *flags)
        flags += ["--setting", json.dumps(setting)]
        return theirs("theirs_text.py", contender.system, "translate", folder, job.threads, *flags)

    def system(self, contender, model, job, folder, setting):
        setting = dict(setting)
        extra = setting.pop("environment", None)
        command = self.command(contender, model, job, folder, setting)
        return System(contender.name, command, self.log, environment(job.threads, extra))

    def choose(self, contender, model, job):
        """The fastest setting of a peer for a job, chosen step by step."""
        sentences = self.sentences(job)
        if contender.system == "marian":
            return self.choose_marian(contender, model, job, sentences)
        few = sentences[: LIBRARY_CHOSEN_BY[model.name]]
        setting = {"inter_threads": 1, "intra_threads": job.threads, "max_batch_size": BATCH_TOKENS[0]}
        steps = [(few, [{"environment": library} for library in LIBRARIES])]
        splits = [
            {"inter_threads": inter, "intra_threads": job.threads // inter}
            for inter in range(1, job.threads + 1)
            if job.threads % inter == 0
        ]
        if job.alone:
            splits = [{"inter_threads": 1, "intra_threads": intra} for intra in range(1, job.threads + 1)]
        steps.append((sentences[: CHOSEN_BY[model.name]], splits))
        if not job.alone:
            steps.append((sentences[: CHOSEN_BY[model.name]], [{"max_batch_size": size} for size in BATCH_TOKENS]))
        for sentences, choices in steps:
            setting |= self.fastest(contender, model, job, sentences, setting, choices)
        return setting

    def choose_marian(self, contender, model, job, sentences):
        """Each of its threads has batches of its own; a product can have several threads, too."""
        sentences = sentences[: CHOSEN_BY[model.name]]
        setting = {"cpu-threads": job.threads, "environment": {"OMP_NUM_THREADS": "1"}}
        splits = [{}, {"cpu-threads": 1, "environment": {"OMP_NUM_THREADS": str(job.threads)}}]
        setting |= self.fastest(contender, model, job, sentences, setting, splits[: job.threads])
        if not job.alone:
            batches = [{"mini-batch": size} for size in MARIAN_ROWS]
            setting |= self.fastest(contender, model, job, sentences, setting, batches)
        return setting

    def fastest(self, contender, model, job, sentences, setting, choices):
        if len(choices) == 1:
            return choices[0]
        seconds = [self.seconds(contender, model, job, sentences, setting | choice) for choice in choices]
        # The first one is the default, or the middle: noise does not choose another.
        return choices[seconds.index(min(seconds)) if min(seconds) < 0.97 * seconds[0] else 0]

    def seconds(self, contender, model, job, sentences, setting):
        """The faster of two turns."""
        folder = self.write_job(model, job, sentences)
        system = self.system(contender, model, job, folder, setting)
        take_turns([system], 2)
        seconds = min(turn["seconds"] for turn in system.turns)
        self.results.add(kind="choice", job=vars(job), system=contender.name, setting=setting, seconds=seconds)
        return seconds

    def sentences(self, job):
        sources = self.file.sources
        return sources[:ALONE] if job.alone or job.measured == "latency" else sources

    def setting(self, contender, model, job):
        if contender.system not in ("ctranslate2", "marian"):
            return {}
        # The time of a token has the setting of the same sentences.
        job = replace(job, measured="text", alone=True) if job.measured == "latency" else job
        key = (contender.name, job)
        if key not in self.settings:
            self.settings[key] = self.choose(contender, model, job)
        return self.settings[key]

    def measure(self, model, job):
        """All systems in turn."""
        print(f"measuring: {vars(job)}", file=sys.stderr, flush=True)
        sentences = self.sentences(job)
        contenders = [contender for contender in self.contenders if contender.does(job)]
        settings = [self.setting(contender, model, job) for contender in contenders]
        folder = self.write_job(model, job, sentences)
        systems = [
            self.system(contender, model, job, folder, setting)
            for contender, setting in zip(contenders, settings)
        ]
        take_turns(systems, self.args.rounds or (3 if self.args.quick or model.name == "base" else 5))
        measured = self.file.first(len(sentences))
        for system, setting, contender in zip(systems, settings, contenders):
            self.results.add(
                kind="turns",
                job=vars(job),
                system=system.name,
                setting=setting,
                skipped=system.skipped,
                words=self.words(contender, model, measured, system.turns),
                latency_length=LATENCY_LENGTH,
                start_mib=system.start_mib,
                turns=system.turns,
                bleu=self.bleu(folder, system, measured) if contender.has_bleu(model, job) else None,
            )

    def words(self, contender, model, measured, turns):
        """The words that were translated. Marian's translations of a batch are all as long as its longest, so that it is
        given as many words as the tokens that it made are for the other systems."""
        words = measured.words()
        if contender.system != "marian":
            return words
        tokenizer = model.directory / "tokenizer.json"
        length = model.length or mean_length(tokenizer, measured.references)
        return words * turns[0]["tokens"] / (length * len(measured.sources))

    def bleu(self, folder, system, measured):
        import sacrebleu

        path = folder / f"{system.name}.txt"
        if system.skipped or not path.exists():
            return None
        translations = path.read_text(encoding="utf-8").split("\n")[:-1]
        return sacrebleu.corpus_bleu(translations, [measured.references]).score

    def measure_processes(self, model, job):
        """Whole processes in turn: reading the model and the file, translating, writing."""
        print(f"measuring whole processes: {vars(job)}", file=sys.stderr, flush=True)
        sentences = self.sentences(job)
        folder = self.write_job(model, job, sentences)
        (folder / "sentences.txt").write_text("".join(f"{line}\n" for line in sentences), encoding="utf-8")
        # The program packs every model that it translates with on flex. Marian's translations are longer.
        contenders = [
            contender
            for contender in self.contenders
            if contender.key() != "flex-plain" and contender.system != "marian"
        ]
        turns = {contender.name: [] for contender in contenders}
        for _ in range(1 if self.args.quick or model.name == "base" else 3):
            for contender in contenders:
                time.sleep(PAUSE)
                turns[contender.name].append(self.process(contender, model, job, folder))
        for name, measured in turns.items():
            self.results.add(kind="process", job=vars(job), system=name, words=self.file.words(), turns=measured)

    def as_user(self, contender, model, job, folder):
        """The command that translates the file once."""
        if not contender.is_ours():
            setting = dict(self.setting(contender, model, job))
            setting.pop("environment", None)
            return [*self.command(contender, model, job, folder, setting), "--once"]
        command = [str(self.program), "translate", "--model", str(self.directory(contender, model)), "--backend", contender.backend]
        command += ["--input", str(folder / "sentences.txt"), "--beam", str(job.beam), "--length-penalty", "average"]
        command += ["--max-length", str(model.length or MAX_LENGTH), "--min-length", str(model.length or 0)]
        return command

    def process(self, contender, model, job, folder):
        setting = self.setting(contender, model, job)
        command = [sys.executable, "-S", "-E", str(HERE / "timed.py"), str(folder / "output.txt")]
        run = subprocess.run(
            [*command, *self.as_user(contender, model, job, folder)],
            env=environment(job.threads, setting.get("environment")),
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        if run.returncode != 0:
            self.log.flush()
            sys.exit(f"error: {contender.name}:\n{Path(self.log.name).read_text()}")
        return json.loads(run.stdout)


def run(args, threads):
    """Measures, writes the raw rounds and prints the tables."""
    contenders = [contender for contender in CONTENDERS if contender.key() in args.systems]
    # No other backend is compiled in: its libraries would need memory.
    features = ",".join(sorted({contender.backend for contender in contenders} - {"", "ndarray"}))
    small = args.model or text.small_model(max(threads))
    file = text.read_text(args.text or small / "valid.tsv")
    file = file.first(args.sentences or (200 if args.quick else len(file.sources)))
    build(features)
    program = args.program or build_program(features)
    results = Results("translate", args)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = []
        if "small" in args.models:
            models.append(convert("small", small, folder, program, None))
        if "base" in args.models:
            directory = base_model(small / "tokenizer.json", folder, features)
            # Of each translation by the base model.
            length = round(mean_length(small / "tokenizer.json", file.references))
            models.append(convert("base", directory, folder, program, length))
        if any(contender.system == "marian" for contender in contenders):
            for model in models:
                write_model(model.directory, list(zip(file.sources, file.references)))
        bench = Bench(args, contenders, folder, program, features, file, results)
        for model in models:
            for count in threads:
                for beam in args.beams:
                    whole = Job(model.name, count, beam)
                    bench.measure(model, whole)
                    bench.measure(model, replace(whole, alone=True))
                    bench.measure_processes(model, whole)
                bench.measure(model, Job(model.name, count, measured="latency"))
    print_tables([results.content])
