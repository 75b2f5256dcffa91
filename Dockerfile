# syntax=docker/dockerfile:1

# Keyward in a container. By default it is an embedded server with its data in a volume:
#
#   docker build --tag keyward .
#   docker run --stop-timeout 60 --publish 127.0.0.1:3000:3000 --volume keyward:/var/lib/keyward keyward
#
# With KEYWARD_DATABASE_URL and KEYWARD_REDIS_URL it is a replica without local data; see docker-compose.yml.

FROM rust:1-slim-bookworm AS build
WORKDIR /src
COPY . .
# The caches keep compiled dependencies between builds of Keyward. A copied file may be older than the cached build, so
# touching the crate roots makes cargo check them again.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    touch src/lib.rs src/main.rs crates/*/src/lib.rs \
    && CARGO_PROFILE_DIST_STRIP=debuginfo cargo build --profile dist --locked --bin keyward \
    && cp target/dist/keyward /usr/local/bin/keyward

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 --user-group --home-dir /var/lib/keyward --create-home keyward
COPY --from=build /usr/local/bin/keyward /usr/local/bin/keyward
# A numeric id, so that an orchestrator can check that the user is not root.
USER 10001
WORKDIR /var/lib/keyward
ENV KEYWARD_LISTEN=0.0.0.0:3000 KEYWARD_DATA_DIR=/var/lib/keyward
EXPOSE 3000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=2s --timeout=3s --start-period=60s CMD ["keyward", "health"]
ENTRYPOINT ["keyward"]
CMD ["serve"]
