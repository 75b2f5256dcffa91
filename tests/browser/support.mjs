// A browser, checks that are counted, and what may never happen on any page.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

export const URL_OF = process.env.KEYWARD_URL;
export const SETUP_LINK = process.env.KEYWARD_SETUP_LINK;
const SHOTS = process.env.KEYWARD_SHOTS;
/** The widths of windows, in pixels, at which every page is looked at. */
export const WIDTHS = process.env.KEYWARD_WIDTHS.split(" ").map(Number);
/** Those of them at which axe sees every page, in both themes. */
const AUDITED_WIDTHS = process.env.KEYWARD_AUDITED_WIDTHS?.split(" ").map(Number) ?? WIDTHS;
/** The pages that axe sees at all widths, if it sees any: a list, an object, a form, charts, filters, and what is folded. */
const FULLY_AUDITED = AUDITED_WIDTHS.some((width) => WIDTHS.includes(width))
  ? ["overview", "keys", "key", "key-new", "analytics", "logs", "gateway-new"] : [];
const SEEN_AFTER_MS = Number(process.env.KEYWARD_SEEN_AFTER_SECONDS) * 1000;
const AXE = readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

const browser = await chromium.launch({
  executablePath: process.env.KEYWARD_CHROMIUM ?? "/usr/bin/chromium",
  // As root, in a container, Chromium has no sandbox to use.
  args: process.getuid() === 0 ? ["--no-sandbox"] : [],
  // It stores files in the home directory of its user too.
  env: { ...process.env, HOME: tmpdir(), XDG_CACHE_HOME: tmpdir(), XDG_CONFIG_HOME: tmpdir() },
});
export const close = () => browser.close();

let passed = 0;
const failed = [];

/** One rule. A failure is told and does not end the story, unless later ones cannot go on without it. */
export async function check(rule, run) {
  const began = performance.now();
  try {
    await run();
    passed += 1;
    const seconds = (performance.now() - began) / 1000;
    console.log(`ok    ${rule}${seconds < 5 ? "" : ` (${seconds.toFixed()} s)`}`);
  } catch (error) {
    failed.push(rule);
    console.log(`FAIL  ${rule}\n      ${String(error.stack ?? error).replaceAll("\n", "\n      ")}`);
  }
}

export function summary() {
  console.log(`${passed} passed, ${failed.length} failed`);
  return passed > 0 && failed.length === 0;
}

/** What browsers complained of, on all pages of all visitors. */
export const complaints = [];

/** What htmx writes about a request that a later one replaced, or whose page the visitor left. */
const ENDED = /^htmx:(afterRequest|sendAbort)\b/;

/** A visitor with cookies of their own, who prefers reduced motion: no color is seen while it changes. */
export async function visitor(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(15_000);
  if (options.javaScriptEnabled !== false) {
    await context.addInitScript(() => {
      addEventListener("securitypolicyviolation", (event) =>
        console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`),
      );
    });
  }
  const page = await context.newPage();
  page.expected = [];
  page.on("console", (message) => {
    if (!["error", "warning"].includes(message.type())) return;
    // What a page answers with a status of refusal, Chromium reports as an error of the resource, and htmx as one of its request.
    const isOf = (expected) => typeof expected === "string" ? message.text().includes(expected)
      : message.text().includes(`status of ${expected}`) || message.text().includes(`Status Error Code ${expected} `);
    if (page.expected.some(isOf) || ENDED.test(message.text())) return;
    complaints.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error}`));
  return page;
}

export const go = (page, path) => page.goto(URL_OF + path);

/** What an operation of version 2 answers a root key. */
export async function v2(rootKey, operation, body) {
  const response = await fetch(`${URL_OF}/v2/${operation}`, {
    method: "POST",
    headers: { authorization: `Bearer ${rootKey}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return { status: response.status, ...(await response.json()) };
}

/** By now every replica knows of the change. */
export const seen = () => new Promise((done) => setTimeout(done, SEEN_AFTER_MS));

const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
/** The rules that a theme can go against. */
const RULES_OF_COLORS = ["color-contrast", "link-in-text-block"];

async function audit(page, rules) {
  // Through the debugger's protocol, which the page's own policy does not bind.
  await page.evaluate(AXE);
  return page.evaluate((runOnly) => axe.run(document, { resultTypes: ["violations"], runOnly }), rules);
}

/** Fails with what axe finds serious or critical. */
export async function accessible(page, rules = RULES) {
  // A click may not have left the last page yet. Then that page is gone before axe is done, and the next one is meant.
  const found = await audit(page, rules).catch(async () => {
    await page.waitForLoadState();
    return audit(page, rules);
  });
  const serious = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
  const told = serious.map((one) => `${one.id}: ${one.nodes.map((node) => node.target + " " + node.failureSummary).join("; ")}`);
  if (told.length === 0) return;
  const isDark = await page.evaluate(() => matchMedia("(prefers-color-scheme: dark)").matches);
  assert.deepEqual(told, [], `${page.url()}, ${page.viewportSize().width} px wide, ${isDark ? "dark" : "light"}`);
}

/** Fails if the page is wider than its window. */
export async function fits(page) {
  const [wide, window] = await page.evaluate(() => [
    document.documentElement.scrollWidth,
    document.documentElement.clientWidth,
  ]);
  assert.ok(wide <= window, `${page.url()} is ${wide} px wide in a window of ${window} px`);
}

/** Keeps a picture, if there is a directory for pictures. */
export function keep(name, picture) {
  if (!SHOTS) return;
  mkdirSync(SHOTS, { recursive: true });
  writeFileSync(`${SHOTS}/${name}.png`, picture);
}

async function keepPictureOf(page, name) {
  if (!SHOTS) return;
  // As high as the page, so that what sticks to the window's edge covers nothing of the picture.
  const { width, height } = page.viewportSize();
  await page.setViewportSize({ width, height: await page.evaluate(() => document.documentElement.scrollHeight) });
  keep(name, await page.screenshot({ fullPage: true }));
  await page.setViewportSize({ width, height });
}

/** Fails unless the page is in order in both themes, in the window that it is in. */
export async function inBothThemes(page, name) {
  await fits(page);
  const isAudited = AUDITED_WIDTHS.includes(page.viewportSize().width) || FULLY_AUDITED.includes(name);
  for (const [colorScheme, rules] of [["light", RULES], ["dark", RULES_OF_COLORS]]) {
    await page.emulateMedia({ colorScheme });
    if (isAudited) await accessible(page, rules);
    if (name) await keepPictureOf(page, `${name}-${page.viewportSize().width}-${colorScheme}`);
  }
  await page.emulateMedia({ colorScheme: null });
}

/** Fails unless the page is in order in both themes at every width. It is loaded for each by `load`, if there is one. */
export async function inOrder(page, name, load = () => {}) {
  const viewport = page.viewportSize();
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 });
    await load();
    await inBothThemes(page, name);
  }
  await page.setViewportSize(viewport);
}

/** Presses Tab until the element of this accessible name has the focus. */
export async function tabTo(page, name) {
  for (let presses = 0; presses < 200; presses += 1) {
    await page.keyboard.press("Tab");
    const focused = await page.evaluate(() => {
      const element = document.activeElement;
      const label = element.labels?.[0]?.textContent ?? element.getAttribute("aria-label");
      // The focus on the link of a row is around the row.
      const shows = [undefined, "::after"].some((part) => {
        const outline = getComputedStyle(element, part);
        return outline.outlineStyle !== "none" && parseFloat(outline.outlineWidth) >= 2;
      });
      return { name: (label ?? element.textContent).trim(), value: element.value, shows };
    });
    if (focused.name === name || focused.value === name) {
      assert.ok(focused.shows, `the focus on ${name} is not to be seen`);
      return;
    }
  }
  assert.fail(`Tab never comes to ${name}`);
}

export { assert };
