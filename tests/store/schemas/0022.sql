-- Written since schema 0022: regions and homes.
INSERT INTO regions (name, position) VALUES ('eu', 0), ('us', 1);
UPDATE apis SET home = 'us';
UPDATE identities SET home = 'us';
UPDATE namespaces SET home = 'us';
UPDATE purses SET region = 'us';
UPDATE replicas SET region = 'us';
