package test

func childMain() {}
