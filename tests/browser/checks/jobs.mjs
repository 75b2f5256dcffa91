// The jobs for which people open the dashboard: each begins at the overview and ends with what the person wanted. It counts
// clicks and fields, and fails above the number that is reached today. The first key is in first_steps.mjs.

import { assert, check, go, inOrder, seen, tabTo, v2, visitor } from "../support.mjs";

/** A person at the overview, whose clicks and fields are counted. A key press that activates something is a click. */
class Person {
  #acts = [];

  constructor(page) {
    this.page = page;
  }

  async click(locator) {
    this.#note("click", locator);
    await locator.click();
  }

  async fill(locator, text) {
    this.#note("fill", locator);
    await locator.fill(text);
  }

  async select(locator, option) {
    this.#note("select", locator);
    await locator.selectOption(option);
  }

  async attach(locator, file) {
    this.#note("attach", locator);
    await locator.setInputFiles(file);
  }

  /** Types into a field that Tab reaches. */
  async type(name, text) {
    this.#note("type", name);
    await tabTo(this.page, name);
    await this.page.keyboard.type(text);
  }

  /** Presses Enter where Tab comes to, which leads to another page. */
  async press(name) {
    this.#note("press", name);
    await tabTo(this.page, name);
    await Promise.all([this.page.waitForEvent("load"), this.page.keyboard.press("Enter")]);
  }

  needsAtMost(max) {
    assert.ok(this.#acts.length <= max, `${this.#acts.length} clicks and fields:\n${this.#acts.join("\n")}`);
    console.log(`      ${this.#acts.length} clicks and fields`);
  }

  #note(act, target) {
    this.#acts.push(`${act} ${target}`);
  }
}

/** A file of 200 keys, of which three rows have errors. */
function fileOf200() {
  const row = (at) => {
    if (at === 20) return `jobs_key_${at},customer ${at},some`;
    if (at === 90) return `,customer ${at},5`;
    if (at === 150) return `jobs_key_1,customer ${at},5`;
    return `jobs_key_${at},customer ${at},5`;
  };
  const rows = Array.from({ length: 200 }, (_, at) => row(at));
  return { name: "keys.csv", mimeType: "text/csv", buffer: Buffer.from(`key,name,credits\n${rows.join("\n")}\n`) };
}

export async function run(story) {
  const page = story.page;
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const main = page.getByRole("main");
  const secretOf = async (on) => (await on.locator("#secret").textContent()).trim();
  const verify = async (key, fields = {}) => (await v2(story.all, "keys.verifyKey", { key, ...fields })).data;
  const nav = (on, name) => on.getByRole("navigation", { name: "Main" }).getByRole("link", { name, exact: true });
  const begin = async (on = page) => {
    await go(on, at(""));
    return new Person(on);
  };
  const api = (await v2(story.all, "apis.createApi", { name: "invoices" })).data.apiId;
  const made = async (fields) => (await v2(story.all, "keys.createKey", { apiId: api, ...fields })).data;

  await check("job: a root key for one API", async () => {
    const key = (await made({})).key;
    const person = await begin();
    await person.click(nav(page, "APIs"));
    await person.click(main.getByRole("link", { name: "invoices", exact: true }));
    await person.click(main.getByRole("link", { name: "Create root key" }));
    assert.ok(await page.getByRole("radio", { name: /^Specific APIs/ }).isChecked());
    assert.ok(await page.getByRole("group", { name: "invoices" }).getByLabel("Verify key").isChecked());
    await inOrder(page);
    await person.click(main.getByRole("button", { name: "Create root key" }));
    const rootKey = await secretOf(page);
    person.needsAtMost(4);
    await seen();
    assert.equal((await v2(rootKey, "keys.verifyKey", { key })).data.code, "VALID");
    assert.notEqual((await v2(rootKey, "keys.createKey", { apiId: api })).status, 200);
    const other = (await v2(story.all, "keys.createKey", { apiId: story.api })).data.key;
    assert.notEqual((await v2(rootKey, "keys.verifyKey", { key: other })).data?.code, "VALID");
  });

  await check("job: a customer's key stopped working", async () => {
    const { key, keyId } = await made({ name: "stopped for the customer" });
    await v2(story.all, "keys.updateKey", { keyId, enabled: false });
    await seen();
    assert.equal((await verify(key)).code, "DISABLED");
    const person = await begin();
    await person.click(page.getByRole("link", { name: /^Search/ }));
    await person.fill(page.getByRole("dialog", { name: "Search" }).getByRole("searchbox"), key);
    await page.getByText("The key is disabled.").waitFor();
    await inOrder(page);
    await person.click(main.getByRole("button", { name: "Enable" }));
    await page.getByText("Key enabled.").waitFor();
    person.needsAtMost(3);
    assert.ok(!page.url().includes(key));
    await seen();
    assert.equal((await verify(key)).code, "VALID");
  });

  await check("job: a change is undone", async () => {
    const { key, keyId } = await made({ name: "deleted by mistake" });
    await v2(story.all, "keys.deleteKey", { keyId });
    await seen();
    assert.equal((await verify(key)).code, "NOT_FOUND");
    const person = await begin();
    await person.click(nav(page, "Audit log"));
    const row = page.getByRole("row", { name: "deleted by mistake" }).filter({ hasText: "Key deleted" });
    await person.click(row.getByRole("link", { name: "Key deleted" }));
    await inOrder(page);
    await person.click(main.getByRole("button", { name: "Undo", exact: true }));
    await page.getByText("This change was undone").waitFor();
    person.needsAtMost(3);
    await seen();
    assert.equal((await verify(key)).code, "VALID");
  });

  await check("job: what a customer spent this month against last month", async () => {
    const { key } = await made({ externalId: "spending-customer", credits: { remaining: 100 } });
    await seen();
    for (const cost of [3, 4]) assert.equal((await verify(key, { credits: { cost } })).code, "VALID");
    // Events are written within seconds.
    const spent = async () => {
      const query = "SELECT sum(spent_credits) AS spent FROM key_verifications_v1 WHERE external_id = 'spending-customer'";
      return Number((await v2(story.all, "analytics.getVerifications", { query })).data?.[0]?.spent ?? 0);
    };
    for (let tries = 0; (await spent()) < 7; tries += 1) {
      assert.ok(tries < 40, "the events are not written");
      await page.waitForTimeout(500);
    }
    const person = await begin();
    await person.click(nav(page, "Identities"));
    await person.fill(main.getByRole("searchbox"), "spending-customer");
    await person.click(main.getByRole("link", { name: "spending-customer" }));
    const figure = (label) => page.locator("dl > div").filter({ has: page.getByText(label, { exact: true }) }).locator("dd").first();
    assert.equal(await figure("Credits spent").textContent(), "7");
    assert.equal(await figure("Credits spent last month").textContent(), "0");
    person.needsAtMost(3);
    await inOrder(page);
  });

  await check("job: an override for one customer, and what a check then says", async () => {
    const namespace = "invoices.send";
    const limit = async () => (await v2(story.all, "ratelimit.limit", { namespace, identifier: "big-customer", limit: 10, duration: 60_000 })).data;
    await limit();
    await seen();
    const person = await begin();
    await person.click(nav(page, "Rate limits"));
    await person.click(main.getByRole("link", { name: namespace }));
    await person.click(main.getByRole("link", { name: "Create override", exact: true }));
    await person.fill(main.getByLabel("Identifier"), "big-customer");
    await person.fill(main.getByLabel("Limit"), "500");
    await person.click(main.getByRole("button", { name: "Create override" }));
    await inOrder(page);
    await person.click(main.getByRole("link", { name: "Simulate big-customer" }));
    await main.getByRole("heading", { name: "Allowed" }).waitFor();
    await main.getByText("An override exists for exactly this identifier.").waitFor();
    await main.getByText("500 per minute").first().waitFor();
    person.needsAtMost(7);
    await inOrder(page);
    await seen();
    assert.equal((await limit()).limit, 500);
  });

  await check("job: a viewer is invited", async () => {
    const person = await begin();
    await person.click(nav(page, "Members"));
    await person.click(main.getByRole("button", { name: "Create invitation" }));
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    await person.click(main.getByRole("button", { name: "Copy" }));
    await page.getByRole("button", { name: "Copied" }).waitFor();
    person.needsAtMost(3);
    await inOrder(page);
    const viewer = await visitor();
    await viewer.goto(await page.evaluate(() => navigator.clipboard.readText()));
    await viewer.getByText("join as viewer").waitFor();
    await viewer.getByLabel("E-mail").fill("viewer@example.com");
    await viewer.getByLabel("Password", { exact: true }).fill("five small green birds");
    await viewer.getByRole("button", { name: "Join" }).click();
    await go(viewer, at("/keys"));
    await viewer.getByRole("heading", { name: "Keys", level: 1 }).waitFor();
    assert.equal(await viewer.getByRole("link", { name: "Create key" }).count(), 0);
    await viewer.context().close();
  });

  await check("job: a key is created, found and disabled by keyboard alone and without JavaScript", async () => {
    const plain = await visitor({ javaScriptEnabled: false, storageState: await page.context().storageState() });
    const person = await begin(plain);
    await person.press("APIs");
    await person.press("invoices");
    await person.press("Create key");
    await person.type("Name", "by keyboard");
    await person.press("Create key");
    const key = await secretOf(plain);
    await person.press("Keys");
    await person.type("Search keys by ID, name, start or external ID, or paste a full key", key);
    await person.press("Search");
    await plain.getByRole("heading", { name: "by keyboard", level: 1 }).waitFor();
    await person.press("Disable");
    await plain.getByText("The key is disabled.").waitFor();
    person.needsAtMost(9);
    await plain.context().close();
    await seen();
    assert.equal((await verify(key)).code, "DISABLED");
  });

  await check("job: 200 keys are imported from a file with errors in three rows", async () => {
    const person = await begin();
    await person.click(nav(page, "Imports"));
    await person.click(main.getByRole("link", { name: "Create import" }));
    await person.click(main.getByRole("button", { name: "Create import" }));
    await person.select(main.getByLabel("API", { exact: true }), api);
    await person.attach(main.getByLabel("File"), fileOf200());
    await person.click(main.getByRole("button", { name: "Preview", exact: true }));
    const invalid = main.getByRole("region", { name: "Rows with errors" });
    // The first row has the headings.
    for (const row of [22, 92, 152]) await invalid.getByRole("listitem").filter({ hasText: `Row ${row} ` }).waitFor();
    assert.equal(await invalid.getByRole("listitem").count(), 3);
    await inOrder(page);
    await person.click(main.getByRole("button", { name: "Import 197 keys" }));
    await main.getByRole("heading", { name: "197 keys imported" }).waitFor();
    person.needsAtMost(7);
    await inOrder(page);
    await seen();
    const verified = await verify("jobs_key_199");
    assert.deepEqual([verified.code, verified.name], ["VALID", "customer 199"]);
    assert.equal((await verify("jobs_key_20")).code, "NOT_FOUND");
  });
}
