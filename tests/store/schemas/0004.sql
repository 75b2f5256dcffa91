-- Written since schema 0004: search texts; which audit entries belong together.
UPDATE identities SET search = 'id_zvhcmkdgyfgnbt37fzqrpl
user_1234'
    WHERE id = 'id_ZvHcMkDgyFgNBT37fZqRpL';
UPDATE identities SET search = 'id_bmrkxt28t9vsanvpv2i2me
user_plain'
    WHERE id = 'id_BmrkXT28t9VSaNVpV2i2me';
UPDATE identities SET search = 'id_bvkahipr2cyffnfpcacqwt
i̇stanbul'
    WHERE id = 'id_bVkaHiPr2CYffNFPCaCQwT';
UPDATE permissions SET search = 'perm_srhjvxvbmauvvbzyng7c1d
docs.read
чтение
read every document'
    WHERE id = 'perm_sRHjVXVbmAUVVbZYNg7C1D';
UPDATE permissions SET search = 'perm_g5sk94glf7nvjah5a11yzh
docs.write
write
'
    WHERE id = 'perm_g5sk94gLF7NVjah5A11YZH';
UPDATE permissions SET search = 'perm_lghpbpcg7gfd13syifu6pp
docs.read
docs.read
'
    WHERE id = 'perm_LGHpbpcG7GFD13syiFU6PP';
UPDATE roles SET search = 'role_w4kuwuxwj4xnzlfpmrbzau
σίσυφος
rolls the stone'
    WHERE id = 'role_w4kuwuxWJ4xnZLFPMRBzAu';
UPDATE roles SET search = 'role_iie3jw225ry9shdiyckubx
viewer
'
    WHERE id = 'role_iiE3jw225ry9shdiycKUbx';
UPDATE audit SET correlation_id = 'cor_en5G9fBWcKycDd4RomTPuL', actor_name = 'cli'
    WHERE id = 'log_fSTnhuTbPbXHsHPP3mix39';
UPDATE audit SET correlation_id = 'cor_m4QvHvZVgu39qEDaxRpeYY', actor_name = 'KEYWARD_ROOT_KEY'
    WHERE id = 'log_PbxVXcPT76DbEtHwttRW3h';
UPDATE audit SET correlation_id = 'cor_c5yCSBwp99G3MyamwCEtLo', actor_name = 'cli'
    WHERE id = 'log_gZVdZ9D8F3ak2WADTQSWXg';
UPDATE audit SET correlation_id = 'cor_i24bsWVd1UzRw9Y8yMZ69x', actor_name = 'cli'
    WHERE id = 'log_FAFNYFYCqD9rgDnRTLx9Pr';
UPDATE audit SET correlation_id = 'cor_q8ZawNHwnxhQJWZg4oJF2o', actor_name = 'KEYWARD_ROOT_KEY'
    WHERE id = 'log_bFsHcFkp7qJXgzNcsLL2sp';
UPDATE audit SET correlation_id = 'cor_HTcxsS7UxstqvEpBM3jzUP', actor_name = 'KEYWARD_ROOT_KEY'
    WHERE id = 'log_7864CvmQP9ur6nQxZQEZ9m';
UPDATE audit SET correlation_id = 'cor_ctXGV4jet7WyqHZKxUUMrz', actor_name = 'KEYWARD_ROOT_KEY'
    WHERE id = 'log_Keo3gtvGC1U2NGesfRarzL';
UPDATE audit SET correlation_id = 'cor_DDQ8faLLDNJzaTYwTK4TJs', actor_name = 'KEYWARD_ROOT_KEY'
    WHERE id = 'log_fA5GKFKns712J6x1bVTdKL';
UPDATE audit SET correlation_id = 'cor_TwSnWYJ9yqQH7agGXRiKRZ', actor_name = 'cli'
    WHERE id = 'log_AkC3huVuVx4A3bMtTJuiJs';
UPDATE audit SET correlation_id = 'cor_F7fdHJMwKj1aeuDqY2ACPw', actor_name = 'KEYWARD_ROOT_KEY'
    WHERE id = 'log_9wAYhn6wD1W3mkzjL6UZJw';
UPDATE audit SET correlation_id = 'cor_MF1ZBC69RL9zVdZd1ovBHH', actor_name = 'KEYWARD_ROOT_KEY'
    WHERE id = 'log_6muLa1Dp6TUe3wP5evcRL6';
UPDATE audit SET correlation_id = 'cor_Rcs3KgxYhDRgFfMKBoAmXs', actor_name = 'cli'
    WHERE id = 'log_mZRZ64t556BdEQno3ZMTVP';
UPDATE audit SET correlation_id = 'cor_DGDXByQk2Q4WqAq7wSv19M', actor_name = 'ÉCOLE'
    WHERE id = 'log_JXwoBhYaczTxbiK1jvDyCK';
