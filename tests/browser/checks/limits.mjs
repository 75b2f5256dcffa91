// Namespaces and overrides are made, changed and deleted, and the simulator tells what holds at the interface.

import { accessible, assert, check, go, seen, v2 } from "../support.mjs";

const hostile = "<script>alert('who')</script>*";

export async function run(story) {
  const page = story.page;
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const limit = async (identifier, cost = 1) =>
    (await v2(story.all, "ratelimit.limit", { namespace: "mail", identifier, limit: 10, duration: 3_600_000, cost })).data;

  await check("a namespace is made", async () => {
    await go(page, at("/ratelimits"));
    await accessible(page);
    await page.getByRole("link", { name: "Create namespace" }).click();
    await accessible(page);
    await page.getByLabel("Name").fill("mail");
    await page.getByRole("button", { name: "Create namespace" }).click();
    await page.getByRole("heading", { name: "mail", level: 1 }).waitFor();
    await accessible(page);
    story.namespace = new URL(page.url()).pathname;
    await seen();
    assert.equal((await limit("user_1", 4)).remaining, 6);
  });

  await check("what checks are answered while the counters are away is chosen", async () => {
    await page.getByRole("link", { name: "Edit outage policy" }).click();
    await accessible(page);
    await page.getByLabel("Closed").check();
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("All checks are rejected").waitFor();
    await accessible(page);
  });

  await check("overrides are set for an identifier and for patterns, shown as text", async () => {
    for (const [identifier, number, unit] of [["user_*", "20", "hours"], ["*", "5", "days"], [hostile, "1", "minutes"]]) {
      await page.getByRole("link", { name: "Create override", exact: true }).click();
      await page.getByLabel("Identifier").fill(identifier);
      await page.getByLabel("Limit").fill(number);
      await page.getByLabel("Window", { exact: true }).fill("1");
      await page.getByLabel("Window unit").selectOption({ label: unit });
      await page.getByRole("button", { name: "Create override" }).click();
      await page.getByRole("status").waitFor();
    }
    await page.getByRole("rowheader", { name: hostile }).waitFor();
    assert.ok(!(await page.content()).includes("<script>alert"));
    await accessible(page);
    await seen();
    assert.equal((await limit("user_2")).limit, 20);
  });

  await check("what is wrong with an override is told and kept", async () => {
    page.expected = [422];
    await page.getByRole("link", { name: "Create override", exact: true }).click();
    await accessible(page);
    await page.getByLabel("Identifier").fill("user_9");
    await page.getByLabel("Limit").fill("many");
    await page.getByRole("button", { name: "Create override" }).click();
    await page.getByRole("alert").waitFor();
    assert.equal(await page.getByLabel("Limit").getAttribute("aria-invalid"), "true");
    assert.equal(await page.getByLabel("Identifier").inputValue(), "user_9");
    await accessible(page);
    page.expected = [];
  });

  await check("the simulator tells which override wins and what is left, and counts nothing", async () => {
    await go(page, story.namespace);
    await page.getByRole("link", { name: "Simulator" }).click();
    await accessible(page);
    await page.getByLabel("Identifier").fill("user_2");
    await page.getByLabel("Cost").fill("20");
    for (let times = 0; times < 3; times += 1) {
      await page.getByRole("button", { name: "Simulate" }).click();
      await page.getByRole("heading", { name: "Rejected" }).waitFor();
    }
    await page.getByText("The override for user_* matches first.").waitFor();
    await page.getByText("20 per hour").first().waitFor();
    await page.getByRole("definition").filter({ hasText: /^19$/ }).waitFor();
    assert.equal(await page.locator("tbody tr").count(), 2);
    await accessible(page);
    assert.equal((await limit("user_2")).remaining, 18);
  });

  await check("an override is changed, and deleted after a question", async () => {
    await go(page, story.namespace);
    await page.getByRole("link", { name: "user_*", exact: true }).click();
    await accessible(page);
    await page.getByLabel("Limit").fill("30");
    assert.ok(await page.getByLabel("Date and time (UTC)").isHidden(), "a date only where Custom is chosen");
    await page.getByLabel("Expires").selectOption("at");
    await page.getByLabel("Date and time (UTC)").fill("2099-12-31T23:59:59");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("status").waitFor();
    await seen();
    assert.equal((await limit("user_2")).limit, 30);
    await page.getByRole("link", { name: "Delete *", exact: true }).click();
    await accessible(page);
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("status").waitFor();
    await seen();
    assert.equal((await limit("somebody")).limit, 10);
  });

  await check("overrides are searched while one types", async () => {
    await page.getByRole("searchbox").pressSequentially("ALERT");
    await page.getByRole("link", { name: "user_*", exact: true }).waitFor({ state: "detached" });
    assert.equal(await page.locator("#list tbody tr").count(), 1);
    await accessible(page);
  });

  await check("a namespace is deleted after a question, and its checks are refused", async () => {
    await go(page, at("/ratelimits/new"));
    await page.getByLabel("Name").fill("for a moment");
    await page.getByRole("button", { name: "Create namespace" }).click();
    await page.getByRole("link", { name: "Delete the namespace" }).click();
    await accessible(page);
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("status").waitFor();
    await seen();
    const refused = await v2(story.all, "ratelimit.limit", { namespace: "for a moment", identifier: "a", limit: 1, duration: 1000 });
    assert.equal(refused.status, 410);
  });
}
