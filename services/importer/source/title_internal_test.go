package source

import (
	"fmt"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestTitleOf(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://example.com/tomato-soup.en.vtt":                                 "tomato soup",
		"https://example.com/Tomato_Soup.pt-BR.srt":                              "Tomato Soup",
		"https://example.com/a/Tomato%20Soup%20-%20quick.vtt":                    "Tomato Soup - quick",
		"https://example.com/Tomato Soup [dQw4w9WgXcQ].en-orig.vtt":              "Tomato Soup",
		"https://example.com/soup (1).txt":                                       "soup",
		"https://example.com/5-minute-bread.vtt":                                 "5 minute bread",
		"https://example.com/מרק-עגבניות.vtt":                                    "מרק עגבניות",
		"https://example.com/best.chicken.ever.vtt":                              "best chicken ever",
		"https://example.com/" + "soup\u202e\u0000" + ".vtt":                     "",
		"https://example.com/":                                                   "",
		"https://example.com":                                                    "",
		"https://example.com/captions.en.vtt":                                    "",
		"https://example.com/page1-1.en.vtt":                                     "",
		"https://example.com/dQw4w9WgXcQ.vtt":                                    "",
		"https://example.com/IMG_2041.jpg":                                       "",
		"https://example.com/2024-05-01 12.33.10.jpg":                            "",
		"https://example.com/Screenshot 2024-05-01.png":                          "",
		"https://example.com/en.vtt":                                             "",
		"https://example.com/..vtt":                                              "",
		"https://example.com/0b2c9d7e5f.vtt":                                     "",
		"ni:///sha-256;f4OxZX_x_FO5LcGBSKHWXfwtSx-j1ncoSt3SABJtkGk?name=pea.vtt": "pea",
		"ni:///sha-256;f4OxZX_x_FO5LcGBSKHWXfwtSx-j1ncoSt3SABJtkGk":              "",
	} {
		check.Same(t, fmt.Sprintf("titleOf(%q)", address), titleOf(address), want)
	}
}
