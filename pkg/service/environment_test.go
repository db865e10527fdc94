package service_test

import (
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/service"
)

type config struct {
	Old   bool          `env:"ENABLE_OLD"`
	Plain string        // has no variable
	Inner string        `env:"-"`
	Size  int           `env:"SHOP_SIZE"`
	Wait  time.Duration `env:"SHOP_WAIT"`
}

func TestRead(t *testing.T) {
	t.Parallel()
	var cfg config
	environment := map[string]string{"SHOP_SIZE": "3", "SHOP_WAIT": "7s", "ENABLE_OLD": "true", "SHOPPING": "x", "HOME": "/"}
	if err := service.Read("shop", environment, &cfg); err != nil || cfg != (config{Old: true, Size: 3, Wait: 7 * time.Second}) {
		t.Errorf("%+v: %v", cfg, err)
	}
}

func TestReadReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	var cfg config
	err := service.Read("shop", map[string]string{"SHOP_SIZE": "many", "SHOP_WAIT": "soon", "ENABLE_OLD": "perhaps", "SHOP_SIZ": "1", "SHOP_": "1"}, &cfg)
	for _, want := range []string{
		`shop: SHOP_SIZE is "many": want a value of the kind int`, `SHOP_WAIT is "soon"`, `ENABLE_OLD is "perhaps"`,
		"unknown environment variable SHOP_SIZ:", "unknown environment variable SHOP_:",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say: %s", err, want)
		}
	}
}

func TestReadOfSomethingElse(t *testing.T) {
	t.Parallel()
	if err := service.Read("shop", nil, new(int)); err == nil {
		t.Error("a number is a configuration")
	}
}
