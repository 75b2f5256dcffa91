// Permissions and roles are made, searched, changed and deleted; which keys hold one is what verification decides.

import { accessible, assert, check, go, seen, tabTo, v2 } from "../support.mjs";

const name = "<script>alert('right')</script>";

export async function run(story) {
  const page = story.page;
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  const verdict = async (key, slug) =>
    (await v2(story.all, "keys.verifyKey", { key, permissions: slug })).data.code;
  let direct, through;

  await check("a root key that may do everything is made for what follows", async () => {
    await go(page, at("/root-keys/new?template=all"));
    await page.getByLabel("Name", { exact: true }).fill("for everything");
    await page.getByRole("button", { name: "Create root key" }).click();
    story.all = (await page.locator("#secret").textContent()).trim();
  });

  await check("a permission is made, and its name shown as text", async () => {
    await go(page, at("/permissions"));
    await accessible(page);
    await page.getByRole("link", { name: "Create permission" }).click();
    await accessible(page);
    await page.getByLabel("Slug").fill("documents.read");
    await page.getByLabel("Name").fill(name);
    await page.getByRole("button", { name: "Create permission" }).click();
    await page.getByRole("status").waitFor();
    await page.getByRole("heading", { name, level: 1 }).waitFor();
    assert.ok(!(await page.content()).includes("<script>alert"));
    await accessible(page);
  });

  await check("what is wrong with a slug is told at its field, and kept", async () => {
    page.expected = [422];
    await go(page, at("/permissions/new"));
    await page.getByLabel("Slug").fill("two words");
    await page.getByRole("button", { name: "Create permission" }).click();
    await page.getByRole("alert").waitFor();
    assert.equal(await page.getByLabel("Slug").inputValue(), "two words");
    assert.equal(await page.getByLabel("Slug").getAttribute("aria-invalid"), "true");
    await accessible(page);
    page.expected = [];
  });

  await check("a role is made of permissions that there are and of new ones", async () => {
    await go(page, at("/roles"));
    await accessible(page);
    await page.getByRole("link", { name: "Create role" }).click();
    await page.getByLabel("Name").fill("reader");
    await page.getByLabel("documents.read").check();
    await page.getByLabel("Other slugs").fill("documents.list\ndocuments.search");
    await accessible(page);
    await page.getByRole("button", { name: "Create role" }).click();
    await page.getByRole("heading", { name: "reader", level: 1 }).waitFor();
    await accessible(page);
    for (const slug of ["documents.list", "documents.read", "documents.search"]) {
      await page.getByRole("link", { name: slug }).waitFor();
    }
    story.role = new URL(page.url()).pathname;
  });

  await check("selecting all permissions leaves those that the filter hides", async () => {
    await go(page, at("/roles/new"));
    const all = page.getByRole("button", { name: "Select all permissions" });
    const checked = () => page.locator('input[name="permission"]:checked').evaluateAll((boxes) => boxes.map((box) => box.value));
    await page.getByLabel("Filter permissions").fill("list");
    await page.getByLabel("documents.read").waitFor({ state: "hidden" });
    await all.click();
    await page.getByRole("button", { name: "Clear permissions" }).waitFor();
    await page.getByLabel("Filter permissions").fill("");
    await all.waitFor();
    await page.getByLabel("documents.read").waitFor();
    assert.deepEqual(await checked(), ["documents.list"]);
  });

  await check("roles and permissions of a key are picked by a search", async () => {
    await go(page, at(`/keys/new?api=${story.api}`));
    await page.locator("summary", { hasText: "Roles and permissions" }).click();
    await page.getByLabel("documents.search").check();
    await page.getByLabel("Filter permissions").pressSequentially("LIST");
    await page.getByLabel("documents.list").waitFor();
    assert.equal(await page.getByLabel("documents.read").isVisible(), false);
    // What is checked stays in sight.
    assert.equal(await page.getByLabel("documents.search").isVisible(), true);
    await page.getByLabel("Filter permissions").press("Enter");
    await page.getByLabel("documents.search").uncheck();
    await page.getByLabel("Filter roles").fill("read");
    await page.getByRole("checkbox", { name: "reader" }).check();
    await accessible(page);
    await page.getByRole("button", { name: "Create key", exact: true }).last().click();
    const secret = (await page.locator("#secret").textContent()).trim();
    assert.equal(await verdict(secret, "documents.read"), "VALID");
    const name = await page.getByRole("link", { name: "View key" }).getAttribute("href");
    assert.equal((await v2(story.all, "keys.deleteKey", { keyId: name.split("/").pop() })).status, 200);
    await page.goto(new URL(story.role, page.url()).href);
  });

  await check("which keys can do something is answered with how they came to it", async () => {
    const made = async (fields) =>
      (await v2(story.all, "keys.createKey", { apiId: story.api, ...fields })).data;
    direct = await made({ name: "of itself <b>", permissions: ["documents.read"] });
    through = await made({ name: "through a role", roles: ["reader"] });
    await made({ name: "neither" });
    await page.getByRole("link", { name: "documents.read" }).click();
    await page.getByRole("link", { name: "View keys" }).click();
    await page.getByRole("row", { name: "of itself <b>" }).waitFor();
    assert.equal(await page.locator("tbody tr").count(), 2);
    await page.getByRole("row", { name: "through a role" }).getByRole("link", { name: "reader" }).waitFor();
    await accessible(page);
    await page.getByRole("searchbox").fill("documents.*");
    await page.getByRole("searchbox").press("Enter");
    await page.getByRole("heading", { name: "Permission not found" }).waitFor();
    assert.deepEqual(
      [await verdict(direct.key, "documents.read"), await verdict(through.key, "documents.list")],
      ["VALID", "VALID"],
    );
  });

  await check("a role that is changed holds at the interface", async () => {
    await page.goto(new URL(story.role, page.url()).href);
    await page.getByRole("link", { name: "Edit permissions" }).click();
    await page.getByRole("button", { name: "Select all permissions" }).waitFor({ state: "detached" });
    await page.getByLabel("documents.list").uncheck();
    await accessible(page);
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("status").waitFor();
    await seen();
    assert.deepEqual(
      [await verdict(through.key, "documents.read"), await verdict(through.key, "documents.list")],
      ["VALID", "INSUFFICIENT_PERMISSIONS"],
    );
  });

  await check("a role is described anew, and keeps its name", async () => {
    await page.getByRole("link", { name: "Settings" }).click();
    await page.getByLabel("Description").fill("Reads documents.");
    await accessible(page);
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Reads documents.").waitFor();
    await page.getByRole("heading", { name: "reader", level: 1 }).waitFor();
    await accessible(page);
  });

  await check("lists are searched while one types", async () => {
    await go(page, at("/permissions"));
    await page.getByRole("searchbox").pressSequentially("SEARCH");
    await page.getByRole("link", { name: "documents.list" }).waitFor({ state: "detached" });
    assert.equal(await page.locator("tbody tr").count(), 1);
    await accessible(page);
  });

  await check("deleting a permission tells how many have it, and takes it from them", async () => {
    await go(page, at("/permissions/documents.read"));
    await page.getByRole("link", { name: "Delete" }).click();
    await page.getByText("1 key with a direct assignment and 1 role lose it").waitFor();
    await accessible(page);
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("status").waitFor();
    await seen();
    assert.deepEqual(
      [await verdict(direct.key, "documents.read"), await verdict(through.key, "documents.read")],
      ["INSUFFICIENT_PERMISSIONS", "INSUFFICIENT_PERMISSIONS"],
    );
  });

  await check("a permission can be made with the keyboard alone", async () => {
    await go(page, at("/permissions"));
    await tabTo(page, "Create permission");
    await page.keyboard.press("Enter");
    await page.getByLabel("Slug").waitFor();
    await tabTo(page, "Slug");
    await page.keyboard.type("documents.write");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "documents.write", level: 1 }).waitFor();
  });
}
