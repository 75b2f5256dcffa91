// Members are invited by a link, may do what their role says, and are removed; sessions are listed and ended.

import { accessible, assert, check, go, visitor } from "../support.mjs";
import { EMAIL, PASSWORD } from "./beginning.mjs";

export const OTHER = "grace@example.com";

export async function run(story) {
  const page = story.page;
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  let other;

  await check("an owner invites a viewer by a link that is shown once", async () => {
    await go(page, at("/members"));
    await accessible(page);
    await page.getByLabel("Viewer").check();
    await page.getByRole("button", { name: "Create invitation" }).click();
    const link = await page.locator("#invitation-link").textContent();
    await accessible(page);
    other = story.other = await visitor({ userAgent: "<b>A browser</b> of Grace" });
    await other.goto(link.trim());
    await other.getByLabel("E-mail").fill(OTHER);
    await other.getByLabel("Password", { exact: true }).fill("three small green birds");
    await other.getByRole("button", { name: "Join" }).click();
    await other.getByRole("heading", { name: "default", level: 1 }).waitFor();
  });

  await check("a viewer looks at everything and changes nothing", async () => {
    await go(other, at("/root-keys"));
    await other.getByRole("link", { name: "the maker" }).waitFor();
    assert.equal(await other.getByRole("link", { name: "Create root key" }).count(), 0);
    other.expected = [403];
    const answer = await go(other, at("/root-keys/new"));
    assert.equal(answer.status(), 403);
    await other.getByRole("heading", { name: "Permission denied" }).waitFor();
    await accessible(other);
    other.expected = [];
  });

  await check("an admin makes root keys and cannot manage members", async () => {
    await go(page, at("/members"));
    await page.getByLabel(`Role of ${OTHER}`).selectOption("admin");
    await page.getByRole("button", { name: `Save the role of ${OTHER}` }).click();
    await page.getByRole("status").waitFor();
    await go(other, at("/root-keys"));
    assert.equal(await other.getByRole("link", { name: "Create root key" }).count(), 1);
    await go(other, at("/members"));
    assert.equal(await other.getByRole("button", { name: "Create invitation" }).count(), 0);
  });

  await check("the last owner cannot step down", async () => {
    page.expected = [412];
    await page.getByLabel(`Role of ${EMAIL}`).selectOption("viewer");
    await page.getByRole("button", { name: `Save the role of ${EMAIL}` }).click();
    await page.getByRole("heading", { name: "Change your own role to viewer?" }).waitFor();
    await page.getByRole("button", { name: "Change role" }).click();
    await page.getByText("must keep an owner").waitFor();
    page.expected = [];
  });

  await check("members are found while one types", async () => {
    await go(page, at("/members"));
    await page.getByRole("searchbox").pressSequentially("GRACE@");
    await page.locator("#list tbody tr").nth(1).waitFor({ state: "detached" });
    await page.locator("#list").getByText(OTHER).first().waitFor();
  });

  await check("a session is listed as text, and ended from another one", async () => {
    const second = await visitor({ userAgent: "<script>agent</script>" });
    await go(second, "/dashboard/login");
    await second.getByLabel("E-mail").fill(EMAIL);
    await second.getByLabel("Password", { exact: true }).fill(PASSWORD);
    await second.getByRole("button", { name: "Sign in" }).click();
    await second.waitForURL(`**${at("")}`);
    await go(page, "/dashboard/account");
    await page.getByText("<script>agent</script>", { exact: true }).waitFor();
    await accessible(page);
    await page.getByRole("button", { name: "End session of <script>agent</script>" }).click();
    await page.getByRole("status").waitFor();
    await go(second, at(""));
    assert.equal(new URL(second.url()).pathname, "/dashboard/login");
    await second.context().close();
  });

  await check("a password is changed by who knows the old one", async () => {
    page.expected = [422];
    await page.getByLabel("Current password").fill("not the password");
    await page.getByLabel("New password").fill("another horse battery");
    await page.getByRole("button", { name: "Change password" }).click();
    await page.getByRole("alert").waitFor();
    await page.getByLabel("Current password").fill(PASSWORD);
    await page.getByLabel("New password").fill(`${PASSWORD}!`);
    await page.getByRole("button", { name: "Change password" }).click();
    await page.getByRole("status").waitFor();
    page.expected = [];
  });

  await check("a member who is removed is out at once", async () => {
    await go(page, at("/members"));
    await page.getByRole("link", { name: `Remove ${OTHER}` }).click();
    await accessible(page);
    await page.getByRole("button", { name: "Remove" }).click();
    await page.getByRole("status").waitFor();
    await go(other, at(""));
    assert.equal(new URL(other.url()).pathname, "/dashboard/login");
    await other.context().close();
  });
}
