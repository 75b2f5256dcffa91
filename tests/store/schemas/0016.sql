-- Written since schema 0016: search texts of APIs, namespaces and overrides.
UPDATE apis SET search = 'api_lluxaursddy2pdbwddn4gd
äpfel und birnen'
    WHERE id = 'api_LLUxauRsDdY2pdBwddn4GD';
UPDATE apis SET search = 'api_2xbbzumyl8btjemd8pceor
γεια gone'
    WHERE id = 'api_2XbBzUmYL8BTJEmd8PcEor';
UPDATE apis SET search = 'api_zgwggfymbgugpys7dgeu7n
plain'
    WHERE id = 'api_zgWgGFYMBgUGPys7DgeU7N';
UPDATE apis SET search = 'api_asz5heemsdx2uc1llbspuq
other'
    WHERE id = 'api_ASz5HEEmSDX2Uc1LLBSPuQ';
UPDATE namespaces SET search = 'rlns_vyzpg7wxqbdck2rcafvacm
öffentlich'
    WHERE id = 'rlns_VYzpG7WXQBDCK2rCafvacm';
UPDATE namespaces SET search = 'rlns_temhhtgwd8u7hcsxr6jhny
gone'
    WHERE id = 'rlns_TemhHTgWd8U7hcsxr6jhnY';
UPDATE overrides SET search = 'rlor_ybnjy2crfykzx4nmj58ymf
σίσυφος'
    WHERE id = 'rlor_YBNJy2CRFykzX4nMj58yMf';
UPDATE overrides SET search = 'rlor_yw78qjyvgpjrocd23tgmpv
premium_*'
    WHERE id = 'rlor_Yw78qjyvgPJRocD23tgmPv';
