// Charts show values, hide series and zoom, in UTC, and refresh themselves. The server's remain without JavaScript.

import { accessible, assert, check, complaints, fits, go, tabTo, v2, visitor } from "../support.mjs";

/** How many pixels of a chart have the color of a series. */
const countPixels = (figure, n) =>
  figure.evaluate((element, n) => {
    const [, ...color] = /(\d+), (\d+), (\d+)/.exec(getComputedStyle(element.querySelectorAll(".legend rect")[n]).fill).map(Number);
    const canvas = element.querySelector("canvas");
    // Chromium warns of a canvas that is read often unless it was made for that.
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let at = 0; at < data.length; at += 4) count += color.every((part, n) => part === data[at + n]) ? 1 : 0;
    return count;
  }, n);

/** What the server sent about a chart, and where on the screen a bar is. Its bars are of one length. */
async function read(figure) {
  const data = JSON.parse(await figure.getAttribute("data-chart"));
  const busy = data.series[0].findIndex((value) => value > 0);
  const box = await figure.locator(".u-over").boundingBox();
  const place = (bar) => ({ x: box.x + (box.width * (bar + 0.5)) / data.times.length, y: box.y + box.height / 2 });
  return { ...data, busy, place };
}

const texts = async (figure) => (await figure.locator(".legend li").allTextContents()).map((text) => text.trim());

export async function run(story) {
  const { page } = story;
  const path = `/dashboard/${story.workspace}/analytics?range=day&key=${story.charted}`;
  const chart = page.locator("figure").first();
  const moment = chart.locator(".plot + .hint");
  const point = async (of, { x, y }) => of.mouse.move(x, y);
  const before = complaints.length;

  await check("a chart shows the time and the values of the bar below the pointer", async () => {
    await go(page, path);
    assert.deepEqual(await texts(chart), ["Valid 7", "Credits exhausted 3"]);
    const { busy, place, series, times } = await read(chart);
    await chart.scrollIntoViewIfNeeded();
    await point(page, (await read(chart)).place(busy));
    assert.deepEqual(await texts(chart), [`Valid ${series[0][busy]}`, `Credits exhausted ${series[1][busy]}`]);
    const sum = series[0][busy] + series[1][busy];
    const label = await page.evaluate((from) => {
      const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short", timeZone: "UTC" });
      return `${format.formatRange(from, from + 3_600_000)} UTC`;
    }, times[busy]);
    assert.equal(await moment.textContent(), `${label} · ${sum} requests`);
    await point(page, place(0));
    assert.deepEqual(await texts(chart), ["Valid 0", "Credits exhausted 0"]);
    await page.mouse.move(0, 0);
    assert.deepEqual(await texts(chart), ["Valid 7", "Credits exhausted 3"]);
    assert.ok(!(await chart.locator(".plot > svg").isVisible()), "the server's chart is replaced");
    await accessible(page);
  });

  await check("a series of a chart is hidden and shown again", async () => {
    const [valid, exhausted] = [await countPixels(chart, 0), await countPixels(chart, 1)];
    assert.ok(valid > 50 && exhausted > 50, `${valid} and ${exhausted} pixels are drawn`);
    const button = chart.getByRole("button", { name: /^Credits exhausted/ });
    await button.click();
    assert.equal(await button.getAttribute("aria-pressed"), "false");
    await page.waitForTimeout(100);
    assert.equal(await countPixels(chart, 1), 0);
    assert.ok((await countPixels(chart, 0)) > valid, "the scale follows what is shown");
    await accessible(page);
    await button.click();
    assert.equal(await button.getAttribute("aria-pressed"), "true");
    await page.waitForTimeout(100);
    assert.equal(await countPixels(chart, 1), exhausted);
  });

  await check("a chart is read, filtered and zoomed with the keyboard alone", async () => {
    await go(page, path);
    const slider = chart.getByRole("slider");
    await tabTo(page, (await slider.getAttribute("aria-label")));
    await page.keyboard.press("Home");
    assert.match(await slider.getAttribute("aria-valuetext"), /: Valid 0, Credits exhausted 0$/);
    const { busy, series, times } = await read(chart);
    for (let bar = 0; bar < busy; bar += 1) await page.keyboard.press("ArrowRight");
    const values = `: Valid ${series[0][busy]}, Credits exhausted ${series[1][busy]}`;
    assert.ok((await slider.getAttribute("aria-valuetext")).endsWith(values));
    await page.keyboard.press("Escape");
    await tabTo(page, "Credits exhausted 3");
    await page.keyboard.press("Space");
    assert.equal(await chart.getByRole("button", { name: /^Credits/ }).getAttribute("aria-pressed"), "false");
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("End");
    await page.keyboard.press("Enter");
    await page.waitForURL("**range=custom**");
    const { searchParams } = new URL(page.url());
    assert.equal(searchParams.get("from"), new Date(times.at(-1)).toISOString().slice(0, 16));
  });

  await check("dragging across a chart zooms the whole page, and going back undoes it", async () => {
    await go(page, path);
    const { busy, place, times } = await read(chart);
    const first = Math.max(0, busy - 1);
    await point(page, place(first));
    await page.mouse.down();
    await page.mouse.move(place(busy).x, place(busy).y, { steps: 5 });
    await page.mouse.up();
    await page.waitForURL("**range=custom**");
    const { searchParams } = new URL(page.url());
    const time = (at) => new Date(at).toISOString().slice(0, 16);
    const period = [searchParams.get("from"), searchParams.get("until")];
    assert.deepEqual(period, [time(times[first]), time(times[busy] + 3_600_000)]);
    assert.equal(searchParams.get("key"), story.charted, "the filters stay");
    assert.deepEqual([await page.getByLabel("Start date").inputValue(), await page.getByLabel("End date").inputValue()], period);
    assert.equal((await read(chart)).unit, "minute");
    for (const width of [390, 768, 1440]) {
      await page.setViewportSize({ width, height: 900 });
      await fits(page);
      const wide = await page.locator(".filters .field > *").evaluateAll((parts) => {
        const right = (element) => element.getBoundingClientRect().right;
        return parts.filter((part) => right(part) > right(part.parentElement) + 1).map((part) => part.id || part.textContent);
      });
      assert.deepEqual(wide, [], `every field has room at ${width} px`);
    }
    assert.equal(await page.locator(".figures dd").first().textContent(), "10");
    await accessible(page);
    await page.goBack();
    assert.equal(new URL(page.url()).search, new URL(path, page.url()).search);
    assert.equal((await read(chart)).unit, "hour");
  });

  await check("a chart follows the theme and the width of the window", async () => {
    await page.emulateMedia({ colorScheme: "light" });
    await go(page, path);
    const light = await countPixels(chart, 0);
    await page.emulateMedia({ colorScheme: "dark" });
    for (let tries = 0; tries < 50 && (await countPixels(chart, 0)) !== light; tries += 1) await page.waitForTimeout(100);
    assert.equal(await countPixels(chart, 0), light, "the bars have the color of the dark theme");
    assert.ok(light > 50);
    for (const width of [390, 768, 1440]) {
      await page.setViewportSize({ width, height: 900 });
      await page.waitForTimeout(200);
      await fits(page);
      await accessible(page);
    }
    await page.emulateMedia({ colorScheme: null });
  });

  await check("the times of a chart are in UTC in every time zone", async () => {
    const storageState = await page.context().storageState();
    const reader = await visitor({ storageState, timezoneId: "Asia/Kolkata", locale: "en-GB" });
    await go(reader, path);
    const figure = reader.locator("figure").first();
    assert.match(await figure.locator("figcaption").textContent(), /\(UTC\)$/);
    const { busy, place, times } = await read(figure);
    await point(reader, place(busy));
    const start = new Date(times[busy]).toISOString().slice(11, 16);
    const shown = await figure.locator(".plot + .hint").textContent();
    // An hour that ends at midnight names both days: "27 Nov 2026, 23:00 – 28 Nov 2026, 00:00 UTC".
    const begins = new RegExp(`${start} ?–`);
    assert.match(shown, begins);
    assert.match(shown, /\d UTC · \d+ requests$/);
    const rows = await figure.locator("tbody th").allTextContents();
    assert.match(rows[busy], begins);
    await reader.context().close();
  });

  await check("live refresh shows new requests, and keeps what the reader chose", async () => {
    await go(page, path);
    await page.getByRole("button", { name: "Live" }).click();
    await page.waitForURL("**live=on**");
    await page.locator("#live[aria-pressed=true]").waitFor();
    await page.evaluate(() => (window.isSamePage = true));
    await chart.getByRole("button", { name: /^Valid/ }).click();
    await chart.getByText("Show as table").click();
    await chart.getByRole("button", { name: /^Credits/ }).focus();
    const verified = await v2(story.maker, "keys.verifyKey", { key: story.chartedKey });
    assert.equal(verified.data.code, "USAGE_EXCEEDED");
    await page.locator(".figures dd").first().getByText("11", { exact: true }).waitFor({ timeout: 20_000 });
    assert.deepEqual(await texts(chart), ["Valid 7", "Credits exhausted 4"]);
    assert.ok(await page.evaluate(() => window.isSamePage));
    assert.equal(await chart.getByRole("button", { name: /^Valid/ }).getAttribute("aria-pressed"), "false");
    assert.equal(await countPixels(chart, 0), 0);
    assert.ok(await chart.getByRole("region").isVisible(), "the table is still open");
    assert.match(await page.evaluate(() => document.activeElement.textContent), /Credits exhausted/);
    await accessible(page);
    await page.getByRole("button", { name: "Live" }).click();
    await page.locator("#live[aria-pressed=false]").waitFor();
    assert.ok(!page.url().includes("live"));
    const isRefreshed = await page.waitForRequest(/analytics/, { timeout: 6000 }).then(() => true, () => false);
    assert.ok(!isRefreshed, "it has stopped");
  });

  await check("live refresh is remembered by the address and offered only for a period that is not over", async () => {
    await go(page, `${path}&live=on`);
    assert.equal(await page.locator("#live").getAttribute("aria-pressed"), "true");
    await page.getByRole("button", { name: "Apply" }).click();
    await page.waitForURL("**live=on**");
    await go(page, `${path.replace("range=day", "range=last-month")}&live=on`);
    assert.equal(await page.getByRole("button", { name: "Live" }).count(), 0);
  });

  await check("live refresh leads to the sign-in when the session has ended", async () => {
    const reader = await visitor({ storageState: await page.context().storageState() });
    await go(reader, `${path}&live=on`);
    await reader.context().clearCookies();
    await reader.waitForURL("**/dashboard/login**");
    await reader.context().close();
  });

  await check("the days below a chart are those of its bars, with the last one", async () => {
    const reader = await visitor({ storageState: await page.context().storageState() });
    await reader.addInitScript(() => {
      globalThis.drawnTexts = [];
      const { fillText } = CanvasRenderingContext2D.prototype;
      CanvasRenderingContext2D.prototype.fillText = function (text, x, ...rest) {
        globalThis.drawnTexts.push({ text, x: x / devicePixelRatio });
        return fillText.call(this, text, x, ...rest);
      };
    });
    await go(reader, path.replace("range=day", "range=month"));
    const figure = reader.locator("figure").first();
    const { times, place, unit } = await read(figure);
    assert.equal(unit, "day");
    const last = await reader.evaluate((at) => new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", timeZone: "UTC" }).format(at), times.at(-1));
    const drawn = (await reader.evaluate(() => globalThis.drawnTexts)).find(({ text }) => text === last);
    const { x } = await figure.locator("canvas").boundingBox();
    assert.ok(Math.abs(x + drawn.x - place(times.length - 1).x) < 3, JSON.stringify(drawn));
    await reader.context().close();
  });

  await check("a printed chart has its legend, and no hint about the pointer", async () => {
    await go(page, path);
    const entry = chart.getByRole("button", { name: /^Credits exhausted \d+$/ });
    await entry.waitFor();
    assert.ok(await moment.isVisible());
    await page.emulateMedia({ media: "print" });
    try {
      assert.ok(await entry.isVisible());
      assert.ok(!(await moment.isVisible()) && !(await page.locator("#live").isVisible()));
    } finally {
      await page.emulateMedia({ media: null });
    }
  });

  await check("without JavaScript a chart is drawn by the server, with a table in UTC", async () => {
    const storageState = await page.context().storageState();
    const plain = await visitor({ storageState, javaScriptEnabled: false, timezoneId: "Asia/Kolkata" });
    await go(plain, `${path}&live=on`);
    const figure = plain.locator("figure").first();
    assert.ok(await figure.locator(".plot > svg").isVisible());
    const style = (of, name) => of.evaluate((element, name) => getComputedStyle(element)[name], name);
    assert.equal(await style(figure.locator(".plot"), "display"), "grid");
    assert.notEqual(await style(figure.locator(".plot rect").first(), "fill"), "rgb(0, 0, 0)");
    assert.match(await figure.locator("figcaption").textContent(), /\(UTC\)$/);
    assert.equal(await figure.locator("canvas, button").count(), 0);
    assert.ok(!(await plain.locator("#live").isVisible()));
    await figure.getByText("Show as table").click();
    assert.match(await figure.locator("tbody th").first().textContent(), /^\d\d:00$/);
    await plain.context().close();
  });

  await check("no chart went against the policy of its page", () => {
    assert.deepEqual(complaints.slice(before), []);
  });
}
