-- Written since schema 0013: what audit entries changed and undid.
UPDATE audit SET after = '{"name":"ÄPFEL und Birnen","defaultPrefix":null,"defaultByteLength":null,"recoverableKeys":false,"deleteProtection":false,"allowedNetworks":[]}'
    WHERE id = 'log_PbxVXcPT76DbEtHwttRW3h';
UPDATE audit SET before = '{"defaultPrefix":null,"defaultByteLength":null,"recoverableKeys":false}', after = '{"defaultPrefix":"prod","defaultByteLength":24,"recoverableKeys":true}'
    WHERE id = 'log_gZVdZ9D8F3ak2WADTQSWXg';
UPDATE audit SET before = '{"deleteProtection":false,"allowedNetworks":[]}', after = '{"deleteProtection":true,"allowedNetworks":["127.0.0.0/8","2001:db8::1/128"]}', undoes = 'log_gZVdZ9D8F3ak2WADTQSWXg'
    WHERE id = 'log_FAFNYFYCqD9rgDnRTLx9Pr';
UPDATE audit SET after = '{"externalId":"USER_1234","meta":{"plan": "gold", "nested": {"a": [1, null, "\u00dc \"q\" \\"]}},"ratelimits":[{"name":"requests","limit":100,"duration":60000,"autoApply":true,"async":false}]}'
    WHERE id = 'log_bFsHcFkp7qJXgzNcsLL2sp';
UPDATE audit SET after = '{"externalId":"user_plain","meta":null,"ratelimits":[]}'
    WHERE id = 'log_7864CvmQP9ur6nQxZQEZ9m';
UPDATE audit SET before = '{"name":null,"externalId":null,"meta":null,"expires":null,"enabled":true,"ratelimits":[],"credits":null,"refill":null}'
    WHERE id = 'log_fA5GKFKns712J6x1bVTdKL';
UPDATE audit SET after = '{"identifier":"ΣΊΣΥΦΟΣ","limit":0,"duration":60000,"expires":null,"async":false}'
    WHERE id = 'log_9wAYhn6wD1W3mkzjL6UZJw';
UPDATE audit SET after = '{"identifier":"Premium_*","limit":1000000,"duration":86400000,"expires":null,"async":false}'
    WHERE id = 'log_6muLa1Dp6TUe3wP5evcRL6';
UPDATE audit SET after = '{"name":"other","defaultPrefix":null,"defaultByteLength":null,"recoverableKeys":false,"deleteProtection":false,"allowedNetworks":[]}'
    WHERE id = 'log_JXwoBhYaczTxbiK1jvDyCK';
