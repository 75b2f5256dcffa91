// Real traffic arrives in charts, which have tables, and are filtered.

import { accessible, assert, check, go, seen, v2 } from "../support.mjs";

/** Comes back to the page until it shows what is waited for: events are written within seconds. */
async function until(page, path, holds) {
  for (let tries = 0; tries < 40; tries += 1) {
    await go(page, path);
    if (await holds()) return;
    await page.waitForTimeout(500);
  }
  assert.fail(`${path} never shows it`);
}

export async function run(story) {
  const page = story.page;
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const total = () => page.locator(".figures dd").first().textContent();

  await check("verifications arrive in a chart within seconds", async () => {
    const made = await v2(story.maker, "keys.createKey", {
      apiId: story.api, externalId: "chart-customer", credits: { remaining: 7 },
    });
    assert.equal(made.status, 200, JSON.stringify(made));
    story.charted = made.data.keyId;
    story.chartedKey = made.data.key;
    await seen();
    for (let n = 0; n < 10; n += 1) await v2(story.maker, "keys.verifyKey", { key: made.data.key, tags: ["path=/chart"] });
    const path = at(`/analytics?range=hour&key=${story.charted}`);
    await until(page, path, async () => (await total()) === "10");
    await page.getByText("Credits exhausted 3").waitFor();
    const bars = page.locator(".plot").first().locator("rect");
    assert.ok((await bars.count()) >= 2);
    await accessible(page);
  });

  await check("the table behind a chart says the same", async () => {
    await page.getByText("Show as table: Verifications").click();
    const table = page.getByRole("region", { name: "Verifications per minute" });
    const cells = await table.locator("tbody td").allTextContents();
    assert.equal(cells.reduce((sum, cell) => sum + Number(cell), 0), 10);
    await accessible(page);
  });

  await check("a change beside a long name is not cut off", async () => {
    await page.setViewportSize({ width: 1440, height: 900 });
    await go(page, at("/analytics"));
    const hidden = await page.getByRole("region", { name: "APIs", exact: true }).evaluate((table) => {
      for (const name of table.querySelectorAll("tbody th a")) name.textContent = "Maps and geocoding, a service with a long name";
      for (const change of table.querySelectorAll("td.change")) change.textContent = "+1,898 (+160.3%) from 1,184";
      return table.scrollWidth - table.clientWidth;
    });
    assert.equal(hidden, 0);
  });

  await check("charts are filtered by a form", async () => {
    await go(page, at("/analytics"));
    await page.getByLabel("Identity", { exact: true }).fill("chart-customer");
    await page.getByLabel("Outcome", { exact: true }).selectOption("USAGE_EXCEEDED");
    await page.getByRole("button", { name: "Apply" }).click();
    assert.equal(await total(), "10");
    assert.equal(await page.locator(".legend").first().textContent(), " Credits exhausted 3");
    await page.getByRole("link", { name: "chart-customer", exact: true }).waitFor();
    await page.getByLabel("Tag", { exact: true }).fill("path=/other");
    await page.getByRole("button", { name: "Apply" }).click();
    assert.equal(await total(), "0");
    await page.getByText("No data for this period.").first().waitFor();
  });

  await check("dates are asked for only in the time range Custom", async () => {
    for (const path of ["/analytics?range=this-month", "/logs"]) {
      await go(page, at(path));
      assert.equal(await page.getByLabel("Start date").isVisible(), false, path);
      await page.getByLabel("Time range").selectOption("custom");
      await page.getByLabel("Start date").fill("2026-03-01");
      assert.equal(await page.getByLabel("Time range").inputValue(), "custom", path);
    }
  });

  await check("what may be a full key is in no URL while it is typed into a list", async () => {
    await go(page, at("/root-keys"));
    const key = "keyward_3xTw9ZbV5yUq1NpLkR7a2C";
    const asked = [];
    page.on("request", (request) => asked.push(request.url()));
    await page.getByRole("searchbox").pressSequentially(key);
    await page.waitForTimeout(600);
    assert.equal(asked.filter((url) => url.includes(key)).length, 0, asked.join(" "));
    page.expected = [422];
    await page.getByRole("main").getByRole("button", { name: "Search" }).click();
    await page.getByText("Key not found in this workspace.").waitFor();
    assert.equal(page.url().includes(key), false, page.url());
  });

  await check("the page of a key shows what it spent this month, and leads to a file", async () => {
    await go(page, at(`/keys/${story.charted}`));
    await page.locator("figure.chart canvas").waitFor();
    const tile = page.locator(".facts.big > div", { hasText: "Credits spent" });
    assert.equal(await tile.locator("dd").first().textContent(), "7");
    await page.getByRole("link", { name: "View in analytics" }).click();
    assert.equal(await page.getByLabel("Time range").inputValue(), "this-month");
    assert.equal(await total(), "10");
    const link = await page.getByRole("link", { name: "Download CSV", exact: true }).getAttribute("href");
    const file = await page.evaluate(async (path) => (await fetch(path)).text(), link);
    const rows = file.trim().split("\n").map((row) => row.split(","));
    const column = rows[0].indexOf("spent_credits");
    assert.equal(rows.slice(1).reduce((sum, row) => sum + Number(row[column]), 0), 7);
    await accessible(page);
  });

  await check("the overview shows the traffic", async () => {
    await go(page, at("?range=hour"));
    await page.getByRole("heading", { name: "Traffic" }).waitFor();
    assert.ok((await page.locator(".plot rect").count()) >= 2);
    await accessible(page);
  });
}
