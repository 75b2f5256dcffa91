// The log of verifications: it refreshes itself, is filtered, and is used by keyboard and without JavaScript.

import { accessible, assert, check, fits, go, seen, v2, visitor } from "../support.mjs";

export async function run(story) {
  const page = story.page;
  const path = `/dashboard/${story.workspace}/logs`;
  const rows = (where = page) => where.getByRole("region", { name: "Verifications" }).locator("tbody tr");
  const verify = (body) => v2(story.maker, "keys.verifyKey", body);
  let key;

  await check("the log shows a new verification by itself", async () => {
    const made = await v2(story.maker, "keys.createKey", { apiId: story.api, name: "log-key", externalId: "log-customer", credits: { remaining: 2 } });
    assert.equal(made.status, 200, JSON.stringify(made));
    key = made.data;
    await seen();
    await go(page, `${path}?key=${key.keyId}`);
    await page.getByRole("heading", { name: "No verifications" }).waitFor();
    await page.getByRole("link", { name: "Live", exact: true }).click();
    await page.getByText("Live: updates every 2 seconds.").waitFor();
    await accessible(page);
    await verify({ key: key.key });
    await page.getByRole("link", { name: "log-key" }).waitFor();
    assert.equal(await rows().count(), 1);
    await verify({ key: key.key });
    await rows().nth(1).waitFor();
    await accessible(page);
  });

  await check("the focus stays on a row when the log refreshes itself", async () => {
    await rows().first().locator("th a").focus();
    const focused = await page.evaluate(() => document.activeElement.id);
    assert.ok(focused.startsWith("req_"), focused);
    await page.waitForResponse((reply) => reply.url().includes("live="));
    await page.waitForResponse((reply) => reply.url().includes("live="));
    assert.equal(await page.evaluate(() => document.activeElement.id), focused);
  });

  await check("the log says so while it cannot be refreshed", async () => {
    const outdated = page.getByRole("alert").getByText("Could not refresh. What is shown may be out of date.");
    page.expected = ["htmx:sendError", "net::ERR_FAILED", 502];
    for (const answer of [(route) => route.abort(), (route) => route.fulfill({ status: 502, body: "Bad Gateway" })]) {
      await page.route(/\/logs\?.*live=/, answer);
      await outdated.waitFor();
      await accessible(page);
      await page.waitForTimeout(2_500);
      assert.equal(await page.getByRole("alert").count(), 1);
      assert.equal(await rows().count(), 2);
      await page.unroute(/\/logs\?.*live=/);
      await outdated.waitFor({ state: "detached" });
    }
    page.expected = [];
  });

  await check("the log stops when it is paused", async () => {
    await page.getByRole("link", { name: "Pause" }).click();
    await page.getByRole("link", { name: "Live", exact: true }).waitFor();
    let isAsked = false;
    page.on("request", (request) => (isAsked ||= request.url().includes("live=")));
    await verify({ key: key.key });
    await page.waitForTimeout(3_000);
    assert.equal(isAsked, false);
    assert.equal(await rows().count(), 2);
    for (let tries = 0; tries < 40 && (await rows().count()) < 3; tries += 1) {
      await page.getByRole("link", { name: "Refresh" }).click();
      await page.waitForLoadState();
      await page.waitForTimeout(500);
    }
    assert.equal(await rows().count(), 3);
  });

  await check("the log is filtered by outcome, API, key and identity, by keyboard", async () => {
    await go(page, path);
    await page.getByLabel("Outcome", { exact: true }).selectOption("USAGE_EXCEEDED");
    await page.getByLabel("API", { exact: true }).selectOption(story.api);
    await page.getByLabel("Key ID").fill(key.keyId);
    await page.getByLabel("Identity", { exact: true }).fill("log-customer");
    await page.getByLabel("Identity", { exact: true }).press("Enter");
    await page.getByRole("link", { name: "log-key" }).waitFor();
    assert.equal(await rows().count(), 1);
    assert.ok((await rows().textContent()).includes("Credits exhausted"));
    await accessible(page);
    // The link covers its row, and so does its outline.
    const isOnRow = () => page.evaluate(() => document.activeElement.matches("tbody th > a"));
    for (let presses = 0; presses < 60 && !(await isOnRow()); presses += 1) await page.keyboard.press("Tab");
    assert.ok(await isOnRow(), "Tab never comes to the row");
    const outline = await page.evaluate(() => getComputedStyle(document.activeElement, "::after").outlineStyle);
    assert.notEqual(outline, "none");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Explain a request" }).waitFor();
  });

  await check("the log is used without JavaScript", async () => {
    const plain = await visitor({ javaScriptEnabled: false, storageState: await page.context().storageState() });
    await go(plain, `${path}?key=${key.keyId}`);
    assert.equal(await rows(plain).count(), 3);
    assert.equal(await plain.getByRole("link", { name: "Live", exact: true }).isVisible(), false);
    await verify({ key: key.key });
    // Events are written once a second.
    for (let tries = 0; tries < 40 && (await rows(plain).count()) < 4; tries += 1) {
      await plain.waitForTimeout(500);
      await plain.getByRole("link", { name: "Refresh" }).click();
      await plain.waitForLoadState();
    }
    assert.equal(await rows(plain).count(), 4);
    await plain.getByLabel("Outcome", { exact: true }).selectOption("VALID");
    await plain.getByRole("button", { name: "Apply" }).click();
    await plain.waitForLoadState();
    assert.equal(await rows(plain).count(), 2);
    await plain.context().close();
  });

  await check("the log shows limit checks, and those of an identifier from the analytics", async () => {
    for (const cost of [1, 2]) {
      const checked = await v2(story.all, "ratelimit.limit", { namespace: "log-limits", identifier: "log-caller", limit: 2, duration: 60_000, cost });
      assert.equal(checked.status, 200, JSON.stringify(checked));
    }
    // Events are written once a second.
    await page.waitForTimeout(2_500);
    await go(page, path);
    await page.getByRole("link", { name: "Limit checks", exact: true }).click();
    await page.getByRole("region", { name: "Limit checks" }).waitFor();
    await page.getByLabel("Identifier", { exact: true }).fill("log-caller");
    await page.getByRole("button", { name: "Apply" }).click();
    await page.waitForURL(/identifier=log-caller/);
    const checks = page.getByRole("region", { name: "Limit checks" }).locator("tbody tr");
    await checks.nth(1).waitFor();
    assert.equal(await checks.count(), 2);
    await accessible(page);
    await page.getByLabel("Outcome", { exact: true }).selectOption({ label: "Rejected" });
    await page.getByRole("button", { name: "Apply" }).click();
    await page.waitForURL(/outcome=false/);
    assert.equal(await checks.count(), 1);
    await checks.first().locator("th a").click();
    await page.getByRole("heading", { name: "Explain a request" }).waitFor();
    await page.getByText("Cost 2; fewer remained of a limit of 2.").waitFor();
    await go(page, `/dashboard/${story.workspace}/analytics?of=limits`);
    await page.getByRole("region", { name: "Top identifiers" }).getByRole("link", { name: "log-caller", exact: true }).click();
    await checks.nth(1).waitFor();
    assert.equal(await page.getByLabel("Identifier", { exact: true }).inputValue(), "log-caller");
  });

  await check("the log fits a narrow window", async () => {
    await page.setViewportSize({ width: 390, height: 900 });
    for (const of of ["", "?of=limits"]) {
      await go(page, `${path}${of}`);
      await fits(page);
      await accessible(page);
    }
    await page.setViewportSize({ width: 1440, height: 900 });
  });
}
