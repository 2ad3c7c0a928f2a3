from account import Account

account = Account(10)
account.withdraw(4)
assert account.balance == 6
try:
    account.withdraw(7)
except ValueError:
    pass
else:
    raise AssertionError("no ValueError")
assert account.balance == 6
