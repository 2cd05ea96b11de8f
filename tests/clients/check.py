#!/usr/bin/env python3
"""Tries a server with clients that nobody here wrote, with a browser, and with hostile requests.

    scripts/setup-clients && .clients/bin/python tests/clients/check.py

The program must be there: cargo build --features flex,serve. --program names another one; --requests is the number of requests
that schemathesis makes up; --pictures is a folder for pictures of the page.
"""
import argparse
import contextlib
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "tests/fixtures/pretrained/marian-en-fr"
SENTENCE = "I am tired."


class Server:
    """The program `transformer serve`, on a port of its own."""

    def __init__(self, program, *flags):
        self.process = subprocess.Popen(
            [program, "serve", "--backend", "flex", "--model", f"en-fr={MODEL}", f"fr-en={MODEL}", "--listen", "127.0.0.1:0", *flags],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"listening on (http://\S+)", line)
            if found:
                self.url = found[1]
                break
        else:
            sys.exit(f"the server does not start:\n{''.join(self.log)}")
        # So that the pipe never fills up.
        threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True).start()
        self.port = int(self.url.rsplit(":", 1)[1])

    def post(self, path, body, kind="application/json"):
        """Status and body of an answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": kind})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def translate(self, text):
        status, answer = self.post("/translate", {"q": text, "source": "en", "target": "fr"})
        assert status == 200, answer
        return answer["translatedText"]

    def end(self):
        """Ends the server as a service manager does; its status must be 0."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        assert status == 0, f"status {status}:\n{''.join(self.log)}"


@contextlib.contextmanager
def server(program, *flags):
    running = Server(program, *flags)
    try:
        yield running
        running.end()
    finally:
        running.process.kill()


def say(text):
    print(f"clients: {text}", flush=True)


def with_clients(program):
    """The clients of LibreTranslate and DeepL."""
    import deepl
    from deep_translator import LibreTranslator
    from libretranslatepy import LibreTranslateAPI

    with server(program) as running:
        expected = running.translate(SENTENCE)
        assert expected and expected != SENTENCE, expected
        libre = LibreTranslateAPI(running.url + "/")
        assert libre.translate(SENTENCE, "en", "fr") == expected
        assert libre.detect("Where is the nearest station?")[0]["language"] == "en"
        assert {language["code"] for language in libre.languages()} == {"en", "fr"}
        say("libretranslatepy: ok")
        deep = LibreTranslator(source="en", target="fr", custom_url=running.url + "/", api_key="none", use_free_api=False)
        assert deep.translate(SENTENCE) == expected
        assert deep.translate_batch([SENTENCE, SENTENCE]) == [expected, expected]
        say("deep-translator: ok")
        client = deepl.DeepLClient("key", server_url=running.url)
        found = client.translate_text([SENTENCE, f"<b>{SENTENCE}</b>"], source_lang="EN", target_lang="FR", tag_handling="html")
        assert [one.text for one in found] == [expected, f"<b>{expected}</b>"], [one.text for one in found]
        say("deepl: ok")


def with_curl(program):
    """The examples of the guide, as they are written there."""
    guide = (ROOT / "docs/guide/serving.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", guide, re.S)
    commands = [line for block in blocks for line in block.replace("\\\n", "").splitlines() if line.startswith("curl ")]
    assert len(commands) >= 8, commands
    with server(program) as running, tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "page.html").write_text(f"<p>{SENTENCE}</p>")
        for command in commands:
            command = command.replace("http://127.0.0.1:5000", running.url).replace("curl ", "curl --fail --silent --show-error ", 1)
            answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=folder)
            assert answer.returncode == 0, (command, answer.stdout, answer.stderr)
            if "stream=true" in command:
                events = re.findall(r"event: (\w+)", answer.stdout)
                assert events == ["sentence", "sentence", "done"], answer.stdout
            elif command.endswith("/metrics"):
                assert "transformer_requests_total" in answer.stdout
            else:
                assert json.loads(answer.stdout), command
    say(f"curl: ok, {len(commands)} examples of the guide")


def with_checkers(program, requests):
    """The description is valid, and made-up requests find no fault."""
    from openapi_spec_validator import validate

    with server(program, "--char-limit", "2000") as running:
        with urllib.request.urlopen(running.url + "/spec") as answer:
            validate(json.load(answer))
        say("openapi-spec-validator: ok")
        checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
        command = [pathlib.Path(sys.executable).parent / "schemathesis", "run", f"{running.url}/spec", "--checks", checks,
                   "--max-examples", str(max(requests // 4, 1)), "--phases", "fuzzing,coverage", "--workers", "4", "--seed", "1"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"schemathesis:\n{done.stdout[-6000:]}{done.stderr[-2000:]}")
        cases = re.findall(r"\d+ generated|Test cases:\s*\n\s*.*", done.stdout)
        say(f"schemathesis: ok, {' '.join(cases).split()}")
        assert running.translate(SENTENCE)


def hostile(program):
    """Huge, nested, wrong and half-sent requests; the server goes on."""
    with server(program, "--char-limit", "5000", "--time-limit", "5") as running:
        expected = running.translate(SENTENCE)
        wrong = [
            b"", b"{", b"[" * 100_000, b'{"q":' * 50_000, b"\x00\xff\xfe", b'{"q": "' + b"a" * 3_000_000 + b'"}',
            json.dumps({"q": ["a"] * 5000, "source": "en", "target": "fr"}).encode(),
            json.dumps({"q": {"a": 1}, "source": [], "target": {}}).encode(),
            json.dumps({"q": "a", "source": "../../etc", "target": "fr"}).encode(),
            json.dumps({"q": "a", "source": "en", "target": "fr", "alternatives": 10**30}).encode(),
            json.dumps({"q": "\ud800", "source": "en", "target": "fr"}).encode(),
            json.dumps({"q": "<b>" * 1600, "source": "en", "target": "fr", "format": "html"}).encode(),
        ]
        for body in wrong * 8:
            for path in ["/translate", "/detect", "/v2/translate"]:
                try:
                    status, _ = running.post(path, body)
                except (ConnectionError, urllib.error.URLError):
                    # The body was not read to its end.
                    continue
                assert status < 500, (path, body[:60], status)
        # Connections that say nothing, half a request, or half a body.
        half = [b"", b"POST /transl", b"POST /translate HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n{\"q\"", b"\x16\x03\x01" * 100]
        connections = []
        for index in range(100):
            connection = socket.create_connection(("127.0.0.1", running.port))
            connection.sendall(half[index % len(half)])
            connections.append(connection)
        assert running.translate(SENTENCE) == expected
        for connection in connections:
            connection.close()
        say("hostile requests: ok")


def ended_under_load(program):
    """Every accepted request is answered after SIGTERM."""
    with server(program) as running:
        running.translate(SENTENCE)
        results = []

        def client(number):
            for one in range(50):
                try:
                    results.append(running.post("/translate", {"q": f"I have {number} cats, {one}.", "source": "en", "target": "fr"})[0])
                except urllib.error.URLError as error:
                    # Refused before it was accepted.
                    assert isinstance(error.reason, ConnectionError), error
                    results.append(None)
                    return

        clients = [threading.Thread(target=client, args=(number,)) for number in range(16)]
        for one in clients:
            one.start()
        time.sleep(1)
        running.process.send_signal(signal.SIGTERM)
        for one in clients:
            one.join()
        statuses = {status for status in results if status is not None}
        assert statuses <= {200, 503}, statuses
        assert results.count(200) > 16
        say(f"SIGTERM under load: ok, {results.count(200)} answered, {len(results) - results.count(200)} not accepted")


def axe(page):
    """The serious findings of axe, a checker of accessibility."""
    script = ROOT / ".clients/axe.min.js"
    # As a part of the program under test would: the page allows no script of others.
    found = page.context.new_cdp_session(page).send("Runtime.evaluate", {
        "expression": script.read_text() + ";axe.run().then((found) => JSON.stringify(found.violations))",
        "awaitPromise": True,
    })
    violations = json.loads(found["result"]["value"])
    serious = [violation for violation in violations if violation["impact"] in ("serious", "critical")]
    return [(violation["id"], [node["html"] for node in violation["nodes"]]) for violation in serious]


def with_browser(program, pictures):
    """The page, driven in Chromium."""
    from playwright.sync_api import sync_playwright

    with server(program) as running, sync_playwright() as play:
        expected = running.translate(SENTENCE)
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for scheme, size in [("light", (1100, 700)), ("dark", (420, 900))]:
            page = browser.new_page(color_scheme=scheme, viewport={"width": size[0], "height": size[1]})
            errors = []
            page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(running.url)
            page.wait_for_selector("#target option", state="attached")
            page.select_option("#source", "en")
            page.select_option("#target", "fr")
            page.type("#text", SENTENCE)
            page.wait_for_selector("#translation:not(:empty)")
            page.wait_for_selector("#result[aria-busy=false]")
            assert page.inner_text("#translation") == expected
            assert re.fullmatch(r"probability [\d.]+ %", page.inner_text("#probability")), page.inner_text("#probability")
            for other in page.locator("#alternatives li").all_inner_texts():
                assert re.search(r" [\d.e-]+ %$", other), other
            # Each word of the translation shows where it comes from, by mouse and by keys.
            page.hover("#translation")
            page.wait_for_selector("#translation span")
            page.hover("#translation span >> nth=0")
            assert page.inner_text("#attended") == SENTENCE
            first = page.text_content("#attended-text")
            page.focus("#translation")
            page.keyboard.press("ArrowRight")
            assert page.text_content("#attended-text") != first, first
            shades = page.eval_on_selector_all("#attended span", "(all) => all.map((word) => getComputedStyle(word).backgroundColor)")
            assert len(set(shades)) > 1, shades
            assert page.inner_text("#translation") == expected
            if pictures:
                page.screenshot(path=pathlib.Path(pictures) / f"page-{scheme}.png")
            page.click("#look")
            page.wait_for_selector("#drawn:not([hidden])")
            config = json.loads((MODEL / "config.json").read_text())
            heads = config["decoder_layers"] * config["decoder_attention_heads"]
            assert page.locator("#maps canvas").count() == heads
            page.select_option("#kind", "encoder")
            assert page.locator("#maps canvas").count() == config["encoder_layers"] * config["encoder_attention_heads"]
            assert page.locator("#beam .chosen rect").count() > 2
            page.focus("#target-tokens span")
            page.hover("#maps canvas")
            if pictures:
                page.screenshot(path=pathlib.Path(pictures) / f"inside-{scheme}.png", full_page=True)
            found = axe(page)
            assert not found, found
            page.click("#swap")
            page.wait_for_selector("#result[aria-busy=false]")
            assert page.input_value("#source") == "fr"
            assert page.input_value("#text") == expected
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "two.md"
                file.write_text(f"# Title\n\n{SENTENCE}\n")
                page.select_option("#source", "en")
                page.select_option("#target", "fr")
                with page.expect_download() as download:
                    page.set_input_files("#file", file)
                text = pathlib.Path(download.value.path()).read_text()
                assert text.startswith("# ") and expected in text, text
            assert not errors, errors
            page.close()
        browser.close()
        say("the page in Chromium: ok")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--program", default=ROOT / "target/debug/transformer")
parser.add_argument("--requests", type=int, default=100)
parser.add_argument("--pictures")
arguments = parser.parse_args()
with_clients(arguments.program)
with_curl(arguments.program)
with_checkers(arguments.program, arguments.requests)
hostile(arguments.program)
ended_under_load(arguments.program)
with_browser(arguments.program, arguments.pictures)
