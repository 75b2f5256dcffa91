#!/bin/sh
# The PostgreSQL image runs this on an empty volume. It creates Keyward's role, which is not a superuser, its database, and
# a role for analytics queries, to which Keyward grants read access to events only.
set -eu
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres <<'SQL'
\set password `cat /run/secrets/keyward_password`
\set analytics_password `cat /run/secrets/analytics_password`
CREATE ROLE keyward LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'password';
CREATE DATABASE keyward OWNER keyward;
CREATE ROLE keyward_analytics LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'analytics_password';
ALTER ROLE keyward_analytics SET temp_file_limit = '1GB';
SQL
