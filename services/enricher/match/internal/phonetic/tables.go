package phonetic

// letters gives the sounds of a letter wherever no other table has another. The values follow the usual romanisations
// (ISO 259, ISO 233, ISO 9, ISO 843) widened by what signs and menus really spell.
var letters = map[rune][2]Sound{
	// Latin.
	'a': {pA}, 'b': {pB}, 'c': {pK | pTs}, 'd': {pD}, 'e': {pE}, 'f': {pF}, 'g': {pG}, 'h': {pH | silent}, 'i': {pI}, 'j': {pJ | pZh | pY | pH | pKh},
	'k': {pK}, 'l': {pL}, 'm': {pM}, 'n': {pN}, 'o': {pO}, 'p': {pP}, 'q': {pK}, 'r': {pR}, 's': {pS | pZ}, 't': {pT}, 'u': {pU}, 'v': {pV | pF},
	'w': {pW | pV}, 'x': {pK, pS}, 'y': {pY | pI}, 'z': {pZ | pTs | pS},
	// Cyrillic.
	'а': {pA}, 'б': {pB}, 'в': {pV | pW}, 'г': {pG | pH}, 'ґ': {pG}, 'д': {pD}, 'е': {pE}, 'ж': {pZh | pJ}, 'з': {pZ}, 'и': {pI}, 'й': {pY | pI | silent},
	'к': {pK}, 'л': {pL}, 'м': {pM}, 'н': {pN}, 'о': {pO}, 'п': {pP}, 'р': {pR}, 'с': {pS}, 'т': {pT}, 'у': {pU | pW}, 'ф': {pF}, 'х': {pKh | pH},
	'ц': {pTs}, 'ч': {pCh}, 'ш': {pSh}, 'щ': {pSh | pCh, pT | pCh | silent}, 'ъ': {pA | pU | silent}, 'ы': {pI}, 'ь': {}, 'э': {pE}, 'ю': {pY | silent, pU}, 'я': {pY | silent, pA},
	'і': {pI}, 'ї': {pI}, 'є': {pE}, 'ў': {pW | pV}, 'ј': {pY}, 'љ': {pL}, 'њ': {pN}, 'ћ': {pCh}, 'ђ': {pJ}, 'џ': {pJ},
	// Greek.
	'α': {pA}, 'β': {pV | pB}, 'γ': {pG | pGh | pY}, 'δ': {pD}, 'ε': {pE}, 'ζ': {pZ}, 'η': {pI | pE}, 'θ': {pT}, 'ι': {pI}, 'κ': {pK}, 'λ': {pL}, 'μ': {pM},
	'ν': {pN}, 'ξ': {pK, pS}, 'ο': {pO}, 'π': {pP}, 'ρ': {pR}, 'σ': {pS | pZ}, 'τ': {pT}, 'υ': {pI | pU | pY}, 'φ': {pF}, 'χ': {pKh | pH}, 'ψ': {pP, pS}, 'ω': {pO},
	// Hebrew.
	'א': {pA | pE | silent}, 'ב': {pB | pV}, 'ג': {pG}, 'ד': {pD}, 'ה': {pH}, 'ו': {pV | pW | pO | pU | silent}, 'ז': {pZ}, 'ח': {pKh | pH}, 'ט': {pT},
	'י': {pY | pI | pE | silent}, 'כ': {pK | pKh}, 'ל': {pL}, 'מ': {pM}, 'נ': {pN}, 'ס': {pS}, 'ע': {vowels | silent}, 'פ': {pP | pF}, 'צ': {pTs}, 'ק': {pK},
	'ר': {pR}, 'ש': {pSh | pS}, 'ת': {pT},
	// Arabic, Persian, Urdu.
	'ا': {pA | silent}, 'ب': {pB | pP}, 'پ': {pP}, 'ت': {pT}, 'ث': {pT | pS}, 'ج': {pJ | pG | pZh}, 'چ': {pCh | pJ | pG}, 'ح': {pH | pKh}, 'خ': {pKh | pK},
	'د': {pD}, 'ذ': {pD | pZ}, 'ر': {pR}, 'ز': {pZ}, 'ژ': {pZh}, 'س': {pS}, 'ش': {pSh}, 'ص': {pS}, 'ض': {pD | pZ}, 'ط': {pT}, 'ظ': {pZ | pD}, 'ع': {vowels | silent},
	'غ': {pG | pGh}, 'ف': {pF | pV}, 'ڤ': {pV}, 'ق': {pK | pG}, 'ك': {pK | pG}, 'گ': {pG}, 'ل': {pL}, 'م': {pM}, 'ن': {pN}, 'ه': {pH},
	'و': {pV | pW | pO | pU | silent}, 'ي': {pY | pI | pE | silent}, 'ء': {silent | vowels},
	// Georgian.
	'ა': {pA}, 'ბ': {pB}, 'გ': {pG}, 'დ': {pD}, 'ე': {pE}, 'ვ': {pV | pW}, 'ზ': {pZ}, 'თ': {pT}, 'ი': {pI}, 'კ': {pK}, 'ლ': {pL}, 'მ': {pM}, 'ნ': {pN},
	'ო': {pO}, 'პ': {pP}, 'ჟ': {pZh | pJ}, 'რ': {pR}, 'ს': {pS}, 'ტ': {pT}, 'უ': {pU | pW}, 'ფ': {pP | pF}, 'ქ': {pK}, 'ღ': {pGh | pG}, 'ყ': {pK | pG}, 'შ': {pSh},
	'ჩ': {pCh}, 'ც': {pTs}, 'ძ': {pZ | pTs | pJ}, 'წ': {pTs}, 'ჭ': {pCh}, 'ხ': {pKh}, 'ჯ': {pJ}, 'ჰ': {pH},
	// Armenian, in the eastern and the western reading.
	'ա': {pA}, 'բ': {pB | pP}, 'գ': {pG | pK}, 'դ': {pD | pT}, 'ե': {pE}, 'զ': {pZ}, 'է': {pE}, 'ը': {vowels | silent}, 'թ': {pT}, 'ժ': {pZh}, 'ի': {pI}, 'լ': {pL},
	'խ': {pKh}, 'ծ': {pTs | pZ}, 'կ': {pK | pG}, 'հ': {pH}, 'ձ': {pZ | pTs}, 'ղ': {pGh | pG | pL}, 'ճ': {pCh | pJ}, 'մ': {pM}, 'յ': {pY | silent}, 'ն': {pN},
	'շ': {pSh}, 'ո': {pO}, 'չ': {pCh}, 'պ': {pP | pB}, 'ջ': {pJ | pCh}, 'ռ': {pR}, 'ս': {pS}, 'վ': {pV}, 'տ': {pT | pD}, 'ր': {pR}, 'ց': {pTs}, 'ւ': {pV | pW}, 'փ': {pP},
	'ք': {pK}, 'օ': {pO}, 'ֆ': {pF}, 'և': {pE, pV},
}

// initial gives the sounds of letters that sound otherwise at the start of a word.
var initial = map[rune][2]Sound{
	'ا': {vowels}, 'א': {pA | pE | pO | sign}, 'ע': {pA | pE | pO | sign}, 'ع': {vowels}, 's': {pS}, 'z': {pZ | pTs}, 'h': {pH}, 'x': {pZ | pK | pS | pSh, pS | silent},
	'ו': {pV | pW}, 'י': {pY | pJ | pI}, 'ה': {pH | silent}, 'ه': {pH}, 'و': {pW | pV | pO | pU}, 'ي': {pY | pI}, 'й': {pY | pI},
}

// final gives the sounds of letters that sound otherwise at the end of a word.
var final = map[rune][2]Sound{
	'ה': {pH | pA | pE | silent}, 'ه': {pH | pA | pE | silent}, 'ი': {pI | silent}, 'd': {pD | pT}, 'д': {pD | pT}, 'в': {pV | pF},
}

// digraphs gives the sounds of letters that are read together, the longest first. Letters that one language reads
// together and another apart are given both readings, the rarer sound being silent: Polish "rz" is zh, "Herzl" has both.
var digraphs = map[string][2]Sound{
	"tsch": {pCh}, "sch": {pSh | pS, pK | pKh | silent}, "tch": {pCh}, "sh": {pSh}, "ch": {pCh | pKh | pSh | pK | pH},
	"ph": {pF}, "th": {pT | pD}, "kh": {pKh | pK | pH}, "gh": {pG | pGh | silent}, "zh": {pZh}, "ts": {pTs | pT, pS | silent},
	"tz": {pTs | pT, pZ | silent}, "cz": {pCh}, "sz": {pSh | pS}, "rz": {pR | silent, pZ | pZh | pTs}, "dj": {pJ}, "dzh": {pJ},
	"dg": {pD | silent, pJ | pG}, "ck": {pK}, "qu": {pK, pW | pV | silent}, "oo": {pU | pO}, "ee": {pI | pE},
	"ou": {pA | pO | pU, pU | pW | silent}, "ow": {pO | pA, pW | silent}, "ea": {pI | pE, pA | silent}, "wh": {pW | pH | pV}, "kn": {pK | silent, pN},
	"wr": {pW | silent, pR}, "ae": {pA | pE}, "oe": {pO | pE}, "ue": {pU | pI}, "gn": {pG | pN, pN | pY | silent},
	"gli": {pG | silent, pL}, "cc": {pK | pCh}, "sci": {pSh | pS, pI},
	"ll":    {pL | pY},
	"au":    {pA | pO, pU | pV | pF | silent},
	"eu":    {pE | pO, pU | pV | pF | silent},
	"ault":  {pO},
	"eau":   {pO},
	"ay":    {pA | pE, pY | pI | silent},
	"ai":    {pA | pE, pY | pI | silent},
	"ei":    {pA | pE, pY | pI | silent},
	"ey":    {pE, pY | pI | silent},
	"oi":    {pO | pU, pI | pA},
	"cae":   {pS | pK | pTs, pI | pE | pA},
	"oy":    {pO | pU, pY | pI | pA},
	"uy":    {pA | pU, pY | pI},
	"eye":   {pA, pY | pI},
	"igh":   {pA | pI, pY | pI | silent},
	"jea":   {pZh | pJ, pA | pI | pE},
	"cques": {pK, pS | silent},
	"cque":  {pK, pE | silent},
	"que":   {pK, pE | silent},
	"ques":  {pK, pS | silent},
	"tion":  {pSh | pTs, pN},
	"ու":    {pU},
	"եւ":    {pE, pV},
	"dz":    {pJ | pZ | pTs},
	"тс":    {pTs},
	"ье":    {pY | pI | silent, pE},
	"ья":    {pY | pI | silent, pA},
	"ью":    {pY | pI | silent, pU},
	"дж":    {pJ},
	"кс":    {pK, pS},
	"тч":    {pCh},
	"μπ":    {pB | pM, pP | silent},
	"ντ":    {pD | pN, pT | silent},
	"γκ":    {pG | pN, pK | silent},
	"γγ":    {pG | pN},
	"τζ":    {pTs | pJ | pZ},
	"τσ":    {pTs | pCh},
	"ου":    {pU},
	"αι":    {pE | pA, pI | silent},
	"ει":    {pI | pE},
	"οι":    {pI | pO},
	"αυ":    {pA, pV | pF | pU},
	"ευ":    {pE, pV | pF | pU},
	"ג'":    {pJ | pCh},
	"ז'":    {pZh | pJ},
	"צ'":    {pCh},
	"ת'":    {pT},
	"ח'":    {pKh},
	"וו":    {pW | pV},
	"יי":    {pY | pI | pE | silent},
	"טש":    {pCh | pT, pSh | silent},
	"דז'":   {pJ},
	"קס":    {pK, pS},
	"لل":    {pL, pL | silent},     // as in Allah
	"الله":  {vowels | silent, pL}, // said with the vowel before it: Abdullah
	"تش":    {pCh},
	"دج":    {pJ},
	"كس":    {pK, pS},
}
