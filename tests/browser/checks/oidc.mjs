// People come in by single sign-on: the whole way to an issuer and back, and who is not let in.

import { ACCOUNTS, start } from "../issuer.mjs";
import { accessible, assert, check, go, visitor } from "../support.mjs";
import { signOut } from "./navigation.mjs";
import { EMAIL, PASSWORD } from "./beginning.mjs";

const BUTTON = "Sign in with the house login";

/** Goes to the issuer by a link of this page, and logs in there. */
async function logIn(page, link, name) {
  await page.getByRole("link", { name: link }).click();
  await page.getByLabel("Name").fill(name);
  await page.getByRole("button", { name: "Log in" }).click();
}

/** Somebody with a browser of their own, who comes in by the button; their page. */
async function comes(name, options) {
  const page = await visitor(options);
  page.expected = [422];
  await go(page, "/dashboard/login");
  await logIn(page, BUTTON, name);
  return page;
}

async function refused(name, sentence) {
  const page = await comes(name);
  await page.getByRole("alert").getByText(sentence).waitFor();
  await accessible(page);
  await go(page, "/dashboard/account");
  assert.equal(new URL(page.url()).pathname, "/dashboard/login");
  await page.context().close();
}

/** The link of an invitation. */
async function invitation(story) {
  await go(story.page, `/dashboard/${story.workspace}/members`);
  await story.page.getByRole("button", { name: "Create invitation" }).click();
  return (await story.page.locator("#invitation-link").textContent()).trim();
}

export async function run(story) {
  const at = (rest) => `/dashboard/${story.workspace}${rest}`;
  let alan, stop, answered;

  await check("an issuer that is away fails its button, and nobody's password", async () => {
    const page = await visitor();
    page.expected = [503];
    await go(page, "/dashboard/login");
    await page.getByRole("link", { name: BUTTON }).click();
    await page.getByRole("heading", { name: "Single sign-on unavailable" }).waitFor();
    await page.getByText("Request ID: req_").waitFor();
    await accessible(page);
    await page.getByRole("link", { name: "Go to dashboard" }).click();
    await page.getByLabel("E-mail").fill(EMAIL);
    await page.getByLabel("Password", { exact: true }).fill(`${PASSWORD}!`);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.waitForURL(`**${at("")}`);
    await page.context().close();
  });

  stop = await start("RS256");

  await check("whom the issuer knows and nobody has invited is not let in", () =>
    refused("alan", "alan@example.com has no account here."));

  await check("an invitation is accepted by single sign-on", async () => {
    const link = await invitation(story);
    alan = await visitor();
    await alan.goto(link);
    await accessible(alan);
    await logIn(alan, "Join with the house login", "alan");
    await alan.getByRole("heading", { name: "default", level: 1 }).waitFor();
    await alan.getByText("Welcome to default.").waitFor();
    const session = (await alan.context().cookies()).find((one) => one.name === "__Host-keyward-session");
    assert.deepEqual([session.httpOnly, session.secure, session.sameSite], [true, true, "Lax"]);
    await go(alan, "/dashboard/account");
    await alan.getByText("You sign in with the house login.").waitFor();
    assert.equal(await alan.getByLabel("New password").count(), 0);
    await accessible(alan);
  });

  await check("who is known comes in by the button, whatever the e-mail is now", async () => {
    await signOut(alan);
    ACCOUNTS.alan = { email: "alan.new@example.com", email_verified: false };
    alan.on("request", (request) => {
      if (request.url().includes("/oidc/callback")) answered = request.url();
    });
    await alan.getByRole("link", { name: BUTTON }).click();
    await alan.waitForURL(`**${at("")}`);
    await alan.getByText("alan@example.com").waitFor();
  });

  await check("an answer of the issuer is heard once, and in the browser that asked", async () => {
    await signOut(alan);
    const other = await visitor();
    for (const page of [alan, other]) {
      page.expected = [422];
      await page.goto(answered);
      await page.getByRole("alert").getByText("was not started in this browser").waitFor();
      await go(page, "/dashboard/account");
      assert.equal(new URL(page.url()).pathname, "/dashboard/login");
    }
    await other.context().close();
    await alan.context().close();
  });

  await check("who has not proven the address, has another domain, or has no address is not let in", async () => {
    await refused("careless", "has not verified the e-mail address careless@example.com.");
    await refused("distant", "E-mail addresses at elsewhere.example are not allowed to sign in here.");
    await refused("nobody", "did not provide your e-mail address");
  });

  await check("who turns back at the issuer is told so", async () => {
    const page = await visitor();
    page.expected = [422];
    await go(page, "/dashboard/login");
    await page.getByRole("link", { name: BUTTON }).click();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("alert").getByText("access_denied").waitFor();
    await page.context().close();
  });

  await check("an account with a password is not taken by who claims its address", async () => {
    ACCOUNTS.mallory = { email: EMAIL, email_verified: true };
    await refused("mallory", "already has an account here");
    const link = await invitation(story);
    const page = await visitor();
    page.expected = [422];
    await page.goto(link);
    await logIn(page, "Join with the house login", "mallory");
    await page.getByRole("alert").getByText("already has an account here").waitFor();
    await page.context().close();
  });

  await check("an account is linked by who is signed in, and unlinked", async () => {
    const page = story.page;
    await go(page, "/dashboard/account");
    await logIn(page, "Link with the house login", "barbara");
    await page.getByText("Account linked.").waitFor();
    await accessible(page);
    const other = await comes("barbara");
    await other.waitForURL(`**${at("")}`);
    await other.getByText(EMAIL).waitFor();
    await other.context().close();
    await page.getByRole("button", { name: "Unlink the house login" }).click();
    await page.getByText("Account unlinked.").waitFor();
    await refused("barbara", "barbara@example.com has no account here.");
  });

  await check("another site sends nobody to the issuer", async () => {
    const page = await visitor();
    // The document has no icon.
    page.expected = [404];
    await page.goto(new URL("/.well-known/openid-configuration", process.env.KEYWARD_OIDC_ISSUER).href);
    await page.evaluate((to) => location.assign(to), `${new URL(story.page.url()).origin}/dashboard/login/oidc`);
    await page.waitForURL("**/dashboard/login");
    await page.context().close();
  });

  await check("without JavaScript, and with keys that the server has not seen yet, one comes in", async () => {
    await stop();
    stop = await start("ES256");
    const page = await comes("alan", { javaScriptEnabled: false });
    await page.waitForURL(`**${at("")}`);
    await page.getByText("alan@example.com").waitFor();
    await page.context().close();
  });

  await check("the page that was requested is shown after single sign-on", async () => {
    const page = await visitor();
    await go(page, at("/apis"));
    await logIn(page, BUTTON, "alan");
    await page.waitForURL(`**${at("/apis")}`);
    await page.context().close();
  });

  await check("who is removed is a stranger again", async () => {
    await go(story.page, at("/members"));
    await story.page.getByRole("link", { name: "Remove alan@example.com" }).click();
    await story.page.getByRole("button", { name: "Remove" }).click();
    await story.page.getByRole("status").waitFor();
    ACCOUNTS.alan = { email: "alan@example.com", email_verified: true };
    await refused("alan", "alan@example.com has no account here.");
  });

  await stop();
}
