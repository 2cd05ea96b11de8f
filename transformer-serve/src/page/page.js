"use strict";

const $ = (id) => document.getElementById(id);
let languages = [];
let settings = {};
// The request under way, which the next one aborts.
let pending = null;
let timer = null;

function problem(text) {
  $("message").textContent = text;
}

async function ask(path, fields, signal) {
  const body = { ...fields };
  if ($("key").value) body.api_key = $("key").value;
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function option(language) {
  const item = document.createElement("option");
  item.value = language.code;
  item.textContent = language.name;
  return item;
}

function nameOf(code) {
  return languages.find((language) => language.code === code)?.name ?? code;
}

/** Offers the targets of the source; of all sources, if it is to be detected. */
function offerTargets() {
  const source = $("source").value;
  const before = $("target").value;
  const of = languages.filter((language) => source === "auto" || language.code === source);
  const codes = new Set(of.flatMap((language) => language.targets));
  const targets = languages.filter((language) => codes.has(language.code));
  $("target").replaceChildren(...targets.map(option));
  if (codes.has(before)) $("target").value = before;
}

function show(text) {
  $("translation").textContent = text;
  $("translation").lang = $("target").value;
  $("copy").disabled = text === "";
}

function showAlternatives(texts) {
  const items = texts.map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  });
  $("alternatives").querySelector("ol").replaceChildren(...items);
  $("alternatives").hidden = items.length === 0;
}

async function translate() {
  pending?.abort();
  const text = $("text").value;
  const count = [...text].length;
  $("count").textContent = settings.charLimit ? `${count} / ${settings.charLimit}` : "";
  problem("");
  if (text.trim() === "") {
    show("");
    showAlternatives([]);
    $("detected").textContent = "";
    $("result").setAttribute("aria-busy", "false");
    return;
  }
  const mine = new AbortController();
  pending = mine;
  $("result").setAttribute("aria-busy", "true");
  try {
    const fields = { q: text, source: $("source").value, target: $("target").value };
    // Of a long text, alternatives are of no use.
    if (count <= 300) fields.alternatives = 3;
    const answer = await ask("translate", fields, mine.signal);
    show(answer.translatedText);
    const others = (answer.alternatives ?? []).filter((other) => other !== answer.translatedText);
    showAlternatives([...new Set(others)]);
    const detected = answer.detectedLanguage;
    $("detected").textContent = detected ? `${nameOf(detected.language)} (${Math.round(detected.confidence)} %)` : "";
    $("detected").dataset.code = detected?.language ?? "";
  } catch (error) {
    if (error.name !== "AbortError") problem(error.message);
  } finally {
    if (pending === mine) {
      pending = null;
      $("result").setAttribute("aria-busy", "false");
    }
  }
}

/** Translates after a pause in typing. */
function later() {
  clearTimeout(timer);
  pending?.abort();
  timer = setTimeout(translate, settings.frontendTimeout ?? 500);
}

function swap() {
  const source = $("source").value === "auto" ? $("detected").dataset.code : $("source").value;
  const target = $("target").value;
  const back = languages.find((language) => language.code === target);
  if (!source || !back?.targets.includes(source)) {
    problem(`There is no translation from ${nameOf(target)}${source ? ` to ${nameOf(source)}` : ""}.`);
    return;
  }
  $("source").value = target;
  offerTargets();
  $("target").value = source;
  $("text").value = $("translation").textContent;
  translate();
}

async function translateFile(file) {
  problem("");
  const form = new FormData();
  form.append("file", file);
  form.append("source", $("source").value);
  form.append("target", $("target").value);
  if ($("key").value) form.append("api_key", $("key").value);
  $("result").setAttribute("aria-busy", "true");
  try {
    const response = await fetch("translate_file", { method: "POST", body: form });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    // The address behind a proxy may be another.
    const path = new URL(answer.translatedFileUrl).pathname.split("/").slice(-2).join("/");
    const link = document.createElement("a");
    link.href = path;
    link.download = file.name.replace(/(\.[^.]*)?$/, `.${$("target").value}$1`);
    link.textContent = link.download;
    $("translation").replaceChildren(link);
    link.click();
  } catch (error) {
    problem(error.message);
  } finally {
    $("result").setAttribute("aria-busy", "false");
  }
}

async function start() {
  [languages, settings] = await Promise.all([
    fetch("languages").then((response) => response.json()),
    fetch("frontend/settings").then((response) => response.json()),
  ]);
  const sources = languages.filter((language) => language.targets.length > 0);
  $("source").append(...sources.map(option));
  const given = new URLSearchParams(location.search);
  if (given.get("source")) $("source").value = given.get("source");
  offerTargets();
  $("target").value = given.get("target") ?? settings.language.target.code;
  document.querySelector(".key").hidden = !settings.keyRequired;
  if (given.get("q")) {
    $("text").value = given.get("q");
    translate();
  }
}

$("form").addEventListener("submit", (event) => event.preventDefault());
$("text").addEventListener("input", later);
$("source").addEventListener("change", () => {
  offerTargets();
  translate();
});
$("target").addEventListener("change", translate);
$("key").addEventListener("change", translate);
$("swap").addEventListener("click", swap);
$("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText($("translation").textContent);
  $("copy").textContent = "Copied";
  setTimeout(() => ($("copy").textContent = "Copy"), 1500);
});
$("file-button").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => $("file").files[0] && translateFile($("file").files[0]));
for (const kind of ["dragover", "dragleave", "drop"]) {
  $("text").addEventListener(kind, (event) => {
    event.preventDefault();
    $("text").classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files[0]) translateFile(event.dataTransfer.files[0]);
  });
}
start().catch((error) => problem(error.message));
