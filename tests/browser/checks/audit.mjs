// What a colleague did is found in the audit log, seen as a difference, and undone.

import { accessible, assert, check, go, seen, v2, visitor } from "../support.mjs";
import { EMAIL } from "./beginning.mjs";

export const COLLEAGUE = "linus@example.com";

export async function run(story) {
  const page = story.page;
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const verdict = async (key) => (await v2(story.all, "keys.verifyKey", { key })).data.code;
  let colleague, made;

  await check("a colleague deletes the wrong key", async () => {
    const api = (await v2(story.all, "apis.createApi", { name: "billing" })).data.apiId;
    const fields = { apiId: api, name: "of the best customer", credits: { remaining: 500 }, meta: { plan: "pro" } };
    made = (await v2(story.all, "keys.createKey", fields)).data;
    await seen();
    assert.equal(await verdict(made.key), "VALID");
    await go(page, at("/members"));
    await page.getByLabel("Admin").check();
    await page.getByRole("button", { name: "Create invitation" }).click();
    const link = await page.locator("#invitation-link").textContent();
    colleague = await visitor();
    await colleague.goto(link.trim());
    await colleague.getByLabel("E-mail").fill(COLLEAGUE);
    await colleague.getByLabel("Password", { exact: true }).fill("four small green birds");
    await colleague.getByRole("button", { name: "Join" }).click();
    await colleague.getByRole("heading", { name: "default", level: 1 }).waitFor();
    await go(colleague, at(`/keys/${made.keyId}/delete`));
    colleague.expected = [410];
    await colleague.getByRole("button", { name: "Delete key" }).click();
    await colleague.getByRole("status").waitFor();
    colleague.expected = [];
    await seen();
    assert.equal(await verdict(made.key), "NOT_FOUND");
  });

  await check("who did it, to what and from where is found", async () => {
    await page.getByRole("link", { name: "Audit log" }).click();
    await accessible(page);
    await page.getByLabel("Actor").fill(COLLEAGUE);
    await page.getByLabel("Event", { exact: true }).selectOption({ label: "Key deleted" });
    await page.getByRole("button", { name: "Apply" }).click();
    const row = page.getByRole("row", { name: "of the best customer" });
    await page.waitForLoadState();
    assert.equal(await page.locator("tbody tr").count(), 1);
    await row.getByRole("link", { name: "Key deleted" }).click();
    await page.getByText(COLLEAGUE).first().waitFor();
    const table = page.getByRole("region", { name: "Changed fields" });
    await table.getByRole("row", { name: "credits 499" }).waitFor();
    await accessible(page);
    story.entry = new URL(page.url()).pathname;
  });

  await check("a click brings it back as it was", async () => {
    await page.getByRole("button", { name: "Undo", exact: true }).click();
    await page.getByText("This change was undone").waitFor();
    assert.equal(await page.getByRole("button", { name: "Undo", exact: true }).count(), 0);
    await accessible(page);
    await seen();
    assert.equal(await verdict(made.key), "VALID");
    await page.getByRole("link", { name: "View the undo entry" }).click();
    await page.getByRole("heading", { name: "Key restored" }).waitFor();
    await page.getByText(EMAIL).first().waitFor();
  });

  await check("a change is seen as a difference, and set back with the keyboard alone", async () => {
    await go(colleague, at(`/keys/${made.keyId}/edit`));
    await colleague.locator("#name").fill("<img src=x onerror=alert(1)>");
    await colleague.getByRole("button", { name: "Save" }).click();
    await colleague.getByRole("status").waitFor();
    await go(page, at(`/audit?event=key.update&about=${made.keyId}`));
    await page.getByRole("link", { name: "Key updated" }).first().click();
    const table = page.getByRole("region", { name: "Changed fields" });
    await table.getByText("<img src=x onerror=alert(1)>", { exact: true }).waitFor();
    await table.getByText("of the best customer", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Undo", exact: true }).focus();
    await page.keyboard.press("Enter");
    await page.getByText("This change was undone").waitFor();
    await go(page, at(`/keys/${made.keyId}`));
    await page.getByRole("heading", { name: "of the best customer", level: 1 }).waitFor();
    await page.getByRole("link", { name: "View history" }).click();
    await page.waitForLoadState();
    assert.ok((await page.locator("tbody tr").count()) >= 5);
  });

  await check("the colleague is removed, and what they did stays told", async () => {
    await go(page, at("/members"));
    await page.getByRole("link", { name: `Remove ${COLLEAGUE}` }).click();
    await page.getByRole("button", { name: "Remove" }).click();
    await page.getByRole("status").waitFor();
    await go(page, at(`/audit?actor=${encodeURIComponent(COLLEAGUE)}`));
    assert.ok((await page.locator("tbody tr").count()) >= 3);
    await colleague.context().close();
  });
}
