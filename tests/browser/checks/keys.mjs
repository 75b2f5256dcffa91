// APIs and keys: made, found, looked at, changed and ended by a person, and what that comes to at the interface.

import { accessible, assert, check, go, seen, tabTo, v2, visitor } from "../support.mjs";
import { EMAIL, PASSWORD } from "./beginning.mjs";

const NAME = "<script>alert('key')</script>";

const secretOf = async (page) => (await page.locator("#secret").textContent()).trim();

export async function run(story) {
  const page = story.page;
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const verify = async (key, fields = {}) => v2(story.maker, "keys.verifyKey", { key, ...fields });
  const codeOf = async (key) => (await verify(key)).data.code;
  let api, key, id;

  await check("an API is made, and its settings hold", async () => {
    await go(page, at("/apis"));
    await accessible(page);
    await page.getByRole("link", { name: "Create API" }).click();
    await accessible(page);
    await page.getByLabel("Name", { exact: true }).fill("ab");
    page.expected = [422];
    await page.getByRole("button", { name: "Create API" }).click();
    await page.getByRole("alert").waitFor();
    await accessible(page);
    page.expected = [];
    await page.getByLabel("Name", { exact: true }).fill("orders <b>");
    await page.getByRole("button", { name: "Create API" }).click();
    await page.getByRole("status").waitFor();
    await accessible(page);
    await page.waitForFunction(() => location.search === "");
    await page.reload();
    assert.equal(await page.getByRole("status").count(), 0, "a reload shows the notice again");
    api = story.orders = new URL(page.url()).pathname.split("/").pop();
    await page.getByRole("link", { name: "Settings" }).click();
    await accessible(page);
    await page.getByLabel("Default prefix").fill("live");
    await page.getByLabel("Delete protection").check();
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("live_").waitFor();
  });

  await check("a key is made with limits, credits and meta, copied, and verifies", async () => {
    await page.getByRole("link", { name: "Create key" }).click();
    await accessible(page);
    await page.getByLabel("Name", { exact: true }).first().fill(NAME);
    await page.getByLabel("External ID").fill("user_77");
    await page.getByLabel("Remaining credits").fill("50");
    assert.equal(await page.getByLabel("Refill amount").isVisible(), false);
    await page.getByLabel("Refill", { exact: true }).selectOption("daily");
    await page.getByLabel("Refill amount").fill("50");
    await page.locator("#limit-name-0").fill("requests");
    await page.locator("#limit-limit-0").fill("3");
    await page.locator("#limit-unit-0").selectOption("h");
    await page.locator("summary", { hasText: "Metadata" }).click();
    await page.getByLabel("Metadata (JSON)").fill('{"plan":"pro"}');
    await page.getByRole("button", { name: "Add another" }).click();
    await page.waitForFunction(() => document.activeElement.id === "limit-name-1");
    await page.locator("#limit-name-1").fill("exports");
    await page.locator("#limit-limit-1").fill("1");
    await page.getByLabel("Apply automatically").nth(1).uncheck();
    await accessible(page);
    await page.getByRole("button", { name: "Create key", exact: true }).last().click();
    await page.getByRole("heading", { name: "Your new key" }).waitFor();
    await accessible(page);
    key = await secretOf(page);
    assert.ok(key.startsWith("live_"), key);
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.getByRole("region", { name: "Key", exact: true }).locator("..").getByRole("button").click();
    await page.getByRole("button", { name: "Copied" }).waitFor();
    assert.equal(await page.locator("main > [aria-live]").last().textContent(), "Copied");
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), key);
    assert.equal(await codeOf(key), "VALID");
    await page.getByRole("link", { name: "View key" }).click();
    id = story.orderKey = new URL(page.url()).pathname.split("/").pop();
  });

  await check("the page of a key shows what is used of its limits, and takes nothing", async () => {
    await page.getByText("1 of 3 used in a window of 1 hour").waitFor();
    await page.reload();
    await page.getByText("1 of 3 used in a window of 1 hour").waitFor();
    await page.getByText("0 of 1 used in a window of 1 minute").waitFor();
    await page.getByText("49", { exact: true }).waitFor();
    // Few permissions take less room than the chart beside them.
    const heights = await page.locator(".pair:has(.rights) > section").evaluateAll((panels) => panels.map((panel) => panel.offsetHeight));
    assert.ok(heights.length === 2 && heights[1] < heights[0], heights.join());
    assert.ok(!(await page.content()).includes("<script>alert"));
    assert.ok(!(await page.content()).includes(key));
    await accessible(page);
  });

  await check("a key is found by a part of its external id while one types, and by state", async () => {
    await go(page, at("/keys"));
    await accessible(page);
    await page.getByRole("searchbox").pressSequentially("ser_7");
    await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
    await page.getByRole("link", { name: NAME }).waitFor();
    await page.getByRole("button", { name: "Select all" }).waitFor();
    const search = () => page.evaluate(() => location.search);
    await page.waitForFunction(() => location.search === "?q=ser_7");
    // A filter applies at once, and a reload keeps both.
    await page.getByLabel("Status").selectOption("disabled");
    await page.getByText("No results").waitFor();
    await accessible(page);
    assert.equal(await search(), "?q=ser_7&state=disabled");
    await page.reload();
    await page.getByText("No results").waitFor();
    assert.equal(await page.getByRole("searchbox").inputValue(), "ser_7");
    assert.equal(await page.getByLabel("Status").inputValue(), "disabled");
    // Create key leads to the form for the selected API.
    await page.getByLabel("API", { exact: true }).selectOption(api);
    await page.locator(`#create[href$="?api=${api}"]`).waitFor();
    // Other lists have theirs, without the token of the form.
    await go(page, at("/apis"));
    await page.getByRole("searchbox").pressSequentially("orders");
    await page.waitForFunction(() => location.search.includes("q=orders"));
    assert.ok(!(await search()).includes("csrf"), await search());
    await page.getByRole("searchbox").fill("live_3xTw9ZbV5yUq1NpLkR7a2C");
    await page.getByText("Press Enter to search.").waitFor();
    assert.equal(await search(), "");
    await page.getByRole("searchbox").fill("orders");
    await page.getByText("Press Enter to search.").waitFor({ state: "detached" });
  });

  await check("a pasted key is found, and stands in no address", async () => {
    const addresses = [];
    page.on("request", (request) => addresses.push(request.url()));
    await go(page, at("/keys"));
    const unknown = "live_3xTw9ZbV5yUq1NpLkR7a2C";
    page.expected = [422];
    await page.getByRole("searchbox").fill(unknown);
    await page.getByText("Key not found in this workspace.").waitFor();
    assert.equal(new URL(page.url()).search, "");
    await page.getByRole("button", { name: "Search" }).click();
    await page.getByText("Key not found in this workspace.").waitFor();
    assert.ok(!(await page.content()).includes(unknown));
    await accessible(page);
    page.expected = [];
    // Found while one types, and by the button.
    await page.getByRole("searchbox").fill(key);
    await page.getByRole("heading", { name: NAME }).waitFor();
    await go(page, at("/search"));
    await accessible(page);
    await page.getByRole("searchbox").fill(key);
    await page.getByRole("searchbox").press("Enter");
    await page.getByRole("heading", { name: NAME }).waitFor();
    assert.ok(addresses.length > 2 && addresses.every((address) => !address.includes(key) && !address.includes(unknown)), addresses);
  });

  await check("a refused request is explained by its id", async () => {
    let refused;
    // Three at most before, and as many after the turn of the hour.
    for (let tries = 0; tries < 7 && refused?.data.code !== "RATE_LIMITED"; tries += 1) {
      refused = await verify(key, { tags: ["path=/v1/orders"] });
    }
    assert.equal(refused.data.code, "RATE_LIMITED");
    await go(page, at("/keys/why"));
    await accessible(page);
    // What happens is written about once a second.
    for (let tries = 0; tries < 20; tries += 1) {
      await page.getByRole("searchbox").fill(refused.meta.requestId);
      await page.getByRole("button", { name: "Explain" }).click();
      await page.waitForLoadState();
      if (await page.getByText("RATE_LIMITED").count()) break;
      await accessible(page);
      await page.waitForTimeout(500);
    }
    await page.getByText('Exceeded "requests": 3 per hour').waitFor();
    await page.getByText("path=/v1/orders").waitFor();
    story.refused = refused.meta.requestId;
    await accessible(page);
    await page.getByRole("link", { name: NAME }).click();
    await page.getByText("Exceeded", { exact: true }).first().waitFor();
    await page.getByRole("cell", { name: "Rate limited" }).first().waitFor();
    await accessible(page);
  });

  await check("a form shows all errors beside their fields, and its summary leads to them", async () => {
    await go(page, at(`/keys/new?api=${api}`));
    assert.equal(await page.getByLabel("Date and time").isVisible(), false);
    await page.getByLabel("Expires").selectOption("at");
    assert.equal(await page.getByLabel("Date and time").isVisible(), true);
    await page.getByLabel("External ID").fill("two words");
    await page.getByLabel("Remaining credits").fill("some");
    await page.locator("summary", { hasText: "Key format" }).click();
    await page.getByLabel("Random bytes").fill("1");
    page.expected = [422];
    await page.getByRole("button", { name: "Create key", exact: true }).last().click();
    await page.getByRole("alert").waitFor();
    await page.waitForFunction(() => document.activeElement.id === "faults");
    await accessible(page);
    for (const [label, error] of [
      ["External ID", "Must contain only"],
      ["Remaining credits", "Must be a whole number of at least 0."],
      ["Random bytes", "Must be a whole number from 16 to 255."],
      ["Date and time", "Must be a date and time"],
    ]) {
      const field = page.getByLabel(label);
      assert.equal(await field.getAttribute("aria-invalid"), "true", label);
      const described = await field.evaluate((element) =>
        element.getAttribute("aria-describedby").split(" ").map((id) => document.getElementById(id).textContent).join(" "),
      );
      assert.ok(described.includes(error), `${label}: ${described}`);
    }
    const links = page.getByRole("alert").getByRole("link");
    assert.equal(await links.count(), 4);
    for (const link of await links.all()) {
      await link.click();
      const target = await page.evaluate(() => document.activeElement.labels?.length);
      assert.ok(target > 0, await link.textContent());
    }
    page.expected = [];
    await go(page, at(`/keys/${id}`));
  });

  await check("a key is changed, and only what was changed", async () => {
    await page.getByRole("link", { name: "Edit", exact: true }).click();
    await accessible(page);
    await page.locator("#limit-limit-0").fill("x");
    page.expected = [422];
    await page.getByRole("button", { name: "Save" }).last().click();
    await page.getByRole("alert").waitFor();
    await accessible(page);
    page.expected = [];
    // By name: exports, requests.
    await page.locator("#limit-limit-0").fill("1");
    await page.locator("#limit-limit-1").fill("100");
    await page.getByRole("button", { name: "Save" }).last().click();
    await page.getByText("Key updated.").waitFor();
    await page.getByText("of 100 used in a window of 1 hour").waitFor();
    await seen();
    const verified = await verify(key);
    assert.equal(verified.data.code, "VALID", JSON.stringify(verified));
    assert.deepEqual(verified.data.meta, { plan: "pro" });
  });

  await check("credits are set, and the page tells who did it", async () => {
    await page.getByRole("link", { name: "Change credits" }).click();
    await accessible(page);
    await page.getByLabel("Operation").selectOption("unlimited");
    assert.equal(await page.getByLabel("Amount").isVisible(), false);
    await page.getByLabel("Operation").selectOption("set");
    await page.getByLabel("Amount").fill("many");
    page.expected = [422];
    await page.getByRole("button", { name: "Update credits" }).click();
    await page.getByRole("alert").waitFor();
    await accessible(page);
    page.expected = [];
    await page.getByLabel("Amount").fill("0");
    await page.getByRole("button", { name: "Update credits" }).click();
    await page.getByText("Credits exhausted.").waitFor();
    await page.getByText("credits set to 0").waitFor();
    await seen();
    assert.equal(await codeOf(key), "USAGE_EXCEEDED");
    await accessible(page);
  });

  await check("a key is disabled and enabled again", async () => {
    await page.getByRole("button", { name: "Disable" }).click();
    await page.getByText("The key is disabled.").waitFor();
    await seen();
    assert.equal(await codeOf(key), "DISABLED");
    await page.getByRole("button", { name: "Enable" }).click();
    await page.getByText("Key enabled.").waitFor();
  });

  await check("a key is re-rolled, and the old one goes on for a while", async () => {
    const made = await v2(story.maker, "keys.createKey", { apiId: api, name: "to be replaced" });
    await go(page, at(`/keys/${made.data.keyId}`));
    await page.getByRole("link", { name: "Rotate" }).click();
    await accessible(page);
    await page.getByLabel("After 1 hour").check();
    await page.getByRole("button", { name: "Rotate" }).click();
    const second = await secretOf(page);
    await seen();
    assert.deepEqual([await codeOf(made.data.key), await codeOf(second)], ["VALID", "VALID"]);
    story.second = second;
  });

  await check("several keys are chosen and disabled, with a page that asks", async () => {
    await go(page, at(`/keys?api=${api}&q=replaced`));
    await page.getByText("0 selected").waitFor();
    assert.ok(await page.getByRole("button", { name: "Disable selected" }).isDisabled());
    await accessible(page);
    await page.getByRole("button", { name: "Select all" }).click();
    assert.equal(await page.locator("tbody input:checked").count(), 2);
    await page.getByText("2 selected").waitFor();
    await page.getByRole("button", { name: "Disable selected" }).click();
    await page.getByRole("heading", { name: "Disable 2 keys?" }).waitFor();
    await accessible(page);
    await page.getByRole("button", { name: "Disable keys" }).click();
    await page.getByRole("heading", { name: "2 keys disabled" }).waitFor();
    await accessible(page);
    await page.getByRole("link", { name: "Back to keys" }).click();
    assert.equal(await page.getByRole("searchbox").inputValue(), "replaced");
    await seen();
    assert.equal(await codeOf(story.second), "DISABLED");
  });

  await check("a key is deleted with the keyboard alone, and nothing accepts it", async () => {
    const made = await v2(story.maker, "keys.createKey", { apiId: api, name: "to be deleted" });
    await go(page, at(`/keys/${made.data.keyId}`));
    await tabTo(page, "Delete");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Delete to be deleted?" }).waitFor();
    await accessible(page);
    await tabTo(page, "Delete key");
    page.expected = [410];
    await page.keyboard.press("Enter");
    await page.getByText("Key deleted.").waitFor();
    await page.getByRole("button", { name: "Restore" }).waitFor();
    page.expected = [];
    await seen();
    assert.equal(await codeOf(made.data.key), "NOT_FOUND");
    story.deletedKey = made.data.keyId;
  });

  await check("a key that stopped working is pasted, shows who deleted it, and is restored", async () => {
    const made = await v2(story.maker, "keys.createKey", { apiId: api, name: "stopped working" });
    await go(page, at(`/keys/${made.data.keyId}/delete`));
    page.expected = [410];
    await page.getByRole("button", { name: "Delete key" }).click();
    await page.getByText("Key deleted.").waitFor();
    await seen();
    assert.equal(await codeOf(made.data.key), "NOT_FOUND");
    await go(page, at("/search"));
    await page.getByRole("searchbox").fill(made.data.key);
    await page.getByRole("button", { name: "Search" }).click();
    await page.getByText("This key was deleted").waitFor();
    await page.getByText(`by ${EMAIL}`).waitFor();
    await accessible(page);
    page.expected = [];
    await page.getByRole("button", { name: "Restore" }).click();
    await page.getByText("Key restored.").waitFor();
    await seen();
    assert.equal(await codeOf(made.data.key), "VALID");
  });

  await check("a protected API is not deleted, and another only by its name", async () => {
    await go(page, at(`/apis/${api}/delete`));
    await page.getByText("This API has delete protection.").waitFor();
    await accessible(page);
    const other = await v2(story.maker, "apis.createApi", { name: "short lived" });
    await go(page, at(`/apis/${other.data.apiId}`));
    await page.getByRole("link", { name: "Delete" }).click();
    await accessible(page);
    await page.getByLabel("Enter the name of the API").fill("short lived");
    await page.getByRole("button", { name: "Delete API" }).click();
    await page.getByText("API deleted.").waitFor();
  });

  await check("a long name takes three lines of a heading and one of the link above it", async () => {
    const other = await v2(story.maker, "apis.createApi", { name: "short lived" });
    const name = "a long name ".repeat(20).trim();
    const made = await v2(story.maker, "keys.createKey", { apiId: other.data.apiId, name });
    const viewport = page.viewportSize();
    await page.setViewportSize({ width: 390, height: 900 });
    const lines = (selector) => page.locator(selector).evaluate((element) => {
      return element.clientHeight / Number.parseFloat(getComputedStyle(element).lineHeight);
    });
    await go(page, at(`/keys/${made.data.keyId}`));
    assert.equal(Math.round(await lines(".head h1")), 3);
    await go(page, at(`/keys/${made.data.keyId}/edit`));
    await accessible(page);
    assert.ok((await lines(".crumbs")) < 2);
    assert.equal(await page.locator(".crumbs a").getAttribute("title"), name);
    await page.setViewportSize(viewport);
    await v2(story.maker, "apis.deleteApi", { apiId: other.data.apiId });
  });

  await check("without JavaScript a key with two limits is made, found, and disabled", async () => {
    const plain = await visitor({ javaScriptEnabled: false });
    await go(plain, "/dashboard/login");
    await plain.getByLabel("E-mail").fill(EMAIL);
    await plain.getByLabel("Password", { exact: true }).fill(PASSWORD);
    await plain.getByRole("button", { name: "Sign in" }).click();
    await go(plain, at("/keys/new"));
    await plain.getByLabel("API", { exact: true }).selectOption(api);
    await plain.getByRole("button", { name: "Continue" }).click();
    await plain.getByLabel("Name", { exact: true }).first().fill("by hand");
    await plain.locator("#limit-name-0").fill("first");
    await plain.locator("#limit-limit-0").fill("10");
    await plain.getByRole("button", { name: "Add another" }).click();
    assert.equal(await plain.getByLabel("Name", { exact: true }).first().inputValue(), "by hand");
    await plain.locator("#limit-name-1").fill("second");
    await plain.locator("#limit-limit-1").fill("20");
    await plain.locator("#limit-limit-1").press("Enter");
    const made = await secretOf(plain);
    assert.equal((await verify(made)).data.ratelimits.length, 2);
    await go(plain, at("/keys"));
    await plain.getByRole("searchbox").fill(made);
    await plain.getByRole("button", { name: "Search" }).click();
    await plain.getByRole("heading", { name: "by hand" }).waitFor();
    assert.ok(!plain.url().includes(made));
    await go(plain, at("/keys"));
    await plain.getByRole("searchbox").fill("by hand");
    await plain.getByRole("searchbox").press("Enter");
    await plain.getByRole("checkbox", { name: "Select by hand" }).check();
    await plain.getByRole("button", { name: "Disable selected" }).click();
    await plain.getByRole("button", { name: "Disable keys" }).click();
    await plain.getByRole("heading", { name: "1 key disabled" }).waitFor();
    await seen();
    assert.equal(await codeOf(made), "DISABLED");
    await plain.context().close();
  });
}
