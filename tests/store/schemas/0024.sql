-- Written since schema 0024: signing keys.
INSERT INTO signing_keys (id, slot, public_key, master_id, sealed, created_at, activated_at, retired_at)
VALUES
    ('sgk_TmEsTahtJojP9FjgVpudHR', 'current', '7Zw5PofQtKG8Cs2kSU0mwumzDATiY6domouTaojW7-w', 'BaTzTSH7aDy', 'BzCxzgEcIe7K1g+tG+qiPTzHUNg57IJ9l8FQo8rjqdG5NZkcpJLipSQrZgtCYnRpHnbpMwrFUIwg4d2A', 1795742801230, 1795742801230, NULL),
    ('sgk_X5gVa8SyAXC6LgXDraPvDC', NULL, '9W9IE8ntG68q35Kg4CQgNtmZaP3PnQqcRVvSfbRtfSY', 'BaTzTSH7aDy', 'ldBCGvUPyisb/PyC9X8satlVcSMkpGMh525zNdIYQhGx0ubwtwSlLE3K8roKimtblUDvWhlYTsRoltED', 1763600000000, 1763600001000, 1763700001000);
