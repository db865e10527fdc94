package kvlock_test

func holderMain() {}
