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
  forget();
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
    $("inside").hidden = count > 300;
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
  const source = sourceCode();
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

/** The source language, or the one that was detected. */
function sourceCode() {
  return $("source").value === "auto" ? $("detected").dataset.code : $("source").value;
}

/** Hides the drawings, which are of another sentence. */
function forget() {
  $("inside").hidden = true;
  $("drawn").hidden = true;
  $("large").hidden = true;
}

async function look() {
  $("look").disabled = true;
  try {
    const inside = await ask("inside", { q: $("text").value, source: sourceCode(), target: $("target").value });
    $("drawn").hidden = false;
    drawTokens(inside);
    const redraw = () => drawMaps(inside, $("kind").value);
    $("kind").onchange = redraw;
    redraw();
    drawBeam(inside.beam);
  } catch (error) {
    problem(error.message);
  } finally {
    $("look").disabled = false;
  }
}

function mean(numbers) {
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
}

/** The tokens; each of the target shows what it attends to. */
function drawTokens(inside) {
  const span = (text) => {
    const token = document.createElement("span");
    token.textContent = text;
    return token;
  };
  const source = inside.source.map(span);
  $("source-tokens").replaceChildren(...source);
  const target = inside.target.map((text, query) => {
    const token = span(text);
    token.tabIndex = 0;
    const heads = inside.cross.flat();
    const weights = inside.source.map((_, key) => mean(heads.map((map) => map[query][key])));
    const most = Math.max(...weights);
    const best = inside.source[weights.indexOf(most)];
    token.setAttribute("aria-label", `${text}, mostly from ${best}`);
    const shade = () => {
      weights.forEach((weight, key) => {
        source[key].style.background = `color-mix(in srgb, var(--accent) ${Math.round((70 * weight) / most)}%, transparent)`;
      });
    };
    token.addEventListener("mouseenter", shade);
    token.addEventListener("focus", shade);
    return token;
  });
  $("target-tokens").replaceChildren(...target);
}

/** Draws a map of weights into a canvas. */
function paint(canvas, map) {
  const context = canvas.getContext("2d");
  const [width, height] = [canvas.width / map[0].length, canvas.height / map.length];
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  map.forEach((row, query) => {
    row.forEach((weight, key) => {
      context.fillStyle = `rgb(10 60 140 / ${weight})`;
      context.fillRect(key * width, query * height, width, height);
    });
  });
}

function drawMaps(inside, kind) {
  const layers = inside[kind].map((heads, layer) => {
    const row = document.createElement("div");
    row.append(`layer ${layer + 1}`);
    heads.forEach((map, head) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-label", `Attention of layer ${layer + 1}, head ${head + 1}`);
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = 88;
      paint(canvas, map);
      button.append(canvas);
      const enlarge = () => {
        paint($("large").querySelector("canvas"), map);
        $("large").querySelector("figcaption").textContent = `Layer ${layer + 1}, head ${head + 1}: ${map.length} queries, ${map[0].length} keys`;
        $("large").hidden = false;
      };
      button.addEventListener("mouseenter", enlarge);
      button.addEventListener("focus", enlarge);
      row.append(button);
    });
    return row;
  });
  $("maps").replaceChildren(...layers);
}

/** Draws the beam: a column per step, a box per hypothesis. */
function drawBeam(steps) {
  const [width, height, gap] = [96, 34, 26];
  const kind = (name, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const rows = Math.max(...steps.map((step) => step.length), 1);
  const svg = kind("svg", { width: steps.length * (width + gap), height: rows * (height + 8), role: "img", "aria-label": "Hypotheses of the beam, step by step" });
  const middle = (row) => row * (height + 8) + height / 2 + 2;
  steps.forEach((step, column) => {
    const left = column * (width + gap);
    step.forEach((node, row) => {
      const mark = node.is_chosen ? "chosen" : "";
      if (column > 0) {
        svg.append(kind("line", { x1: left - gap, y1: middle(node.parent), x2: left, y2: middle(row), class: mark }));
      }
      const box = kind("g", { class: mark });
      box.append(kind("rect", { x: left + 1, y: middle(row) - height / 2, width: width - 2, height, rx: 4 }));
      box.append(kind("text", { x: left + 6, y: middle(row) - 2 }, node.token.slice(0, 12)));
      box.append(kind("text", { x: left + 6, y: middle(row) + 12, class: "score" }, node.log_prob.toFixed(2)));
      svg.append(box);
    });
  });
  $("beam").replaceChildren(svg);
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
$("look").addEventListener("click", look);
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
