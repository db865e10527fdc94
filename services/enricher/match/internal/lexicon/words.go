package lexicon

// stopWords are articles, prepositions, conjunctions and legal forms.
const stopWords = `
the le la les los las il lo gli el al der die das den dem het de da do du des di del della dello dei delle degli dos das o os as ha ال
a an un una uno une ein eine
and & n und et y e og och en ja i и й και ve ו و
of של von van vom zu zum zur til av på
at im am in on by bei near chez auf an ב ل في в на у
inc llc ltd limited gmbh ag sarl srl spa bv nv oy ab as aps plc corp corporation sa kg ohg ug eurl sas sl ооо ип зао оао בעמ
co company cie compagnie
s
`

// venueWords are words for kinds of places.
const venueWords = `
restaurant restaurants rest restaraunt restaurante restaurantes ristorante ristoranti restoran restauracja resto restó restauracia restaurang restaurace gasthaus gaststatte gasthof wirtshaus ravintola etterem מסעדה מסעדת ресторан рестораны εστιατοριο εστιατορια مطعم مطاعم رستوران lokanta lokantasi
cafe caffe kafe kafee kaffee coffee coffees coffeehouse coffeehouses coffeeshop espresso אספרסו cafeteria kaffeehaus kawiarnia kahve kahvila kahvehane kavarna koffie cafes קפה בית-קפה קפיטריה بيت-القهوة مقهى قهوة كافيه кафе кофейня кофе кофехауз кофехаус кавярня καφε καφετερια καφενειο
bar bars barra בר بار бар μπαρ
grill grille griglia grillbar grillhouse grillade גריל جريل مشويات гриль ψησταρια
bistro bistrot bistrò ביסטרו بيسترو бистро μπιστρο
brasserie braserie brauhaus brewpub brewery brewing brewhouse בראסרי пивная μπιραρια
pizzeria pizzaria pitseria פיצריה пиццерия πιτσαρια بيتزاريا
trattoria tratoria trattorie טרטוריה траттория τρατορια
osteria hostaria hosteria locanda אוסטריה остерия
taverna tavern taverne taberna tasca таверна ταβερνα טברנה
pub pubs publichouse alehouse פאב паб παμπ
inn lodge guesthouse auberge pousada albergue
diner diners דיינר дайнер
kitchen kitchens cocina cucina cuisine cuisines cozinha kuche keuken kuchnia mutfak מטבח кухня κουζινα مطبخ
bank banco banque banca banka בנק банк банка بنك مصرف τραπεζα ბანკი
house maison casa haus huis dom dum האוס хаус هاوس בית дом σπιτι بيت دار
room rooms salon salle sala saal חדר зал
club lounge klub מועדון לאונג клуб
hotel hotels hotell otel albergo hostal hostel מלון отель гостиница ξενοδοχειο فندق
steakhouse steak-house chophouse סטייקהאוס стейкхаус
dining din
bakery boulangerie bageterie panaderia panificio backerei bakkerij padaria patisserie pasticceria konditorei pekarna פסטיסרי מאפיה מאפיית קונדיטוריה пекарня кондитерская φουρνος ζαχαροπλαστειο مخبز حلويات
deli delicatessen delicatessens delis delikatessen דליקטסן מעדניה מעדני деликатесы
buffet buffets בופה буфет
eatery eateries eats
takeaway takeout take-away
canteen cantina cantine kantine mensa столовая kantyna קנטינה
parlor parlour
shop store boutique laden negozio tienda magasin חנות магазин
center centre centro zentrum centrum merkaz מרכז центр κεντρο مركز
place
branch filiale succursale sucursal סניף филиал فرع υποκαταστημα
express אקספרס экспресс
original originale
hall halle
garden gardens garten jardin jardim giardino גן сад κηπος حديقة
mall plaza shopping קניון молл مول
market mercado mercato marche markt rynek маркет ماركت שוק рынок αγορα سوق
street ave avenue
city town
catering קייטרינג кейтеринг
bros brothers freres fratelli hermanos gebruder האחים братья
chef שף шеф
gourmet גורמה
food foods אוכל еда φαγητο طعام اكل
`

// foodWords are dishes, cuisines and common adjectives.
const foodWords = `
saint st ste sainte sankt sint святой
abu abou אבו ابو абу
umm oum ام
mount mt
fort ft
doctor dr
mister mr
pizza pizzas pitsa пицца פיצה πιτσα بيتزا
burger burgers hamburger hamburgers burgery המבורגר המבורגרים בורגר бургер бургеры μπεργκερ برجر برغر همبرغر
sushi суши סושי σουσι سوشي
falafel פלאפל фалафель φαλαφελ فلافل
hummus humus houmous houmus hommos חומוס хумус χουμους حمص
shawarma shawerma shoarma shwarma shaurma שווארמה שוארמה שאוורמה шаурма شاورما
kebab kebap kabab kabob kebob doner קבב кебаб κεμπαπ كباب
steak steaks bistecca סטייק סטיק стейк ستيك
noodle noodles נודלס лапша نودلز
ramen ראמן рамен
taco tacos taqueria טאקו тако
sandwich sandwiches sandwichs sub subs סנדוויץ כריך كريك сэндвич
chicken pollo poulet huhn pui עוף צ'יקן курица κοτοπουλο دجاج فراخ
fish pesce poisson pescado fisch דג דגים рыба ψαρι سمك اسماك
seafood marisqueria mariscos peixe frutti פירות-ים θαλασσινα
meat carne viande fleisch בשר בשרים мясо κρεας لحم لحوم
wine vino vin wein vinho enoteca vinoteca יין вино κρασι
beer bier cerveza birra biere בירה пиво μπυρα
tea teahouse te tee תה чай شاي
juice juices jus מיץ сок عصير
icecream gelato gelateria glace eis eisdiele helado heladeria gelataria גלידה גלידריה мороженое παγωτο ايس بوظة
bbq barbecue barbeque barbacoa ברביקיו барбекю
pasta паста פסטה
salad salads סלט סלטים салат
soup soups suppe sopa מרק суп
breakfast brunch בוקר завтрак
pancake pancakes פנקייק פנקייקים блины
donut donuts doughnut doughnuts דונאט
bagel bagels бейгл בייגל
curry кари קארי
tapas טאפאס тапас
italian italiano italiana italiens italienisch איטלקי איטלקית итальянский ιταλικο ايطالي
chinese chinois chino cinese chinesisch סיני סינית китайский κινεζικο صيني
japanese japonais japones giapponese japanisch יפני יפנית японский ιαπωνικο ياباني
indian indien indisch indiano indio הודי הודית индийский ινδικο هندي
thai thailandais תאילנדי תאילנדית тайский ταϊλανδεζικο تايلندي
mexican mexicano mexicain mexikanisch messicano מקסיקני מקסיקנית мексиканский μεξικανικο مكسيكي
french francais frances franzosisch francese צרפתי צרפתית французский γαλλικο فرنسي
greek grec griechisch griego greco יווני יוונית греческий ελληνικο يوناني
american americano americain amerikanisch אמריקאי אמריקאית американский
asian asia asiatique asiatico asiatisch אסייתי אסייתית азиатский اسيوي
vietnamese pho вьетнамский
korean корейский קוריאני
turkish turc turco turkisch turk טורקי турецкий τουρκικο تركي
mediterranean mediterraneo mediterranee ים-תיכוני средиземноморский μεσογειακο
spanish espanol espagnol ספרדי
lebanese libanais libanes לבנוני لبناني
israeli israelien ישראלי
vegan vegane vegano וגן טבעוני веган
vegetarian veggie vegetarien vegetariano צמחוני
kosher כשר כשרה кошерный
halal halaal حلال
grand grande gran gross grosse גדול большой
little small petit petite pequeno piccolo piccola klein kleine קטן קטנה маленький μικρο صغير
new nuevo nueva nouveau nouvelle neue neuer neues nova novo nuova nuovo חדש חדשה новый νεο جديد
old alte alter altes vieux vieille viejo vecchio velho ישן старый παλιο قديم
royal reale royale real מלכותי
golden gold oro זהב золотой χρυσο ذهبي
red rosso rojo rouge rot rote אדום красный κοκκινο احمر
green verde vert grun grune ירוק зеленый πρασινο اخضر
black negro nero noir schwarz schwarze שחור черный μαυρο اسود
white bianco blanco blanc weiss weisse לבן белый λευκο ابيض
blue blu azul bleu blau כחול синий μπλε ازرق
sea mer mar mare meer ים море θαλασσα بحر
palace palais palazzo palacio palast ארמון дворец قصر
king roi rey re konig מלך король βασιλιας ملك
family familia famille famiglia משפחה семья οικογενεια عائلة
sons son fils figli hijos filhos sohne בנים בניו сыновья сыновей υιοι اولاد وأولاده
daughters filles figlie hijas tochter בנות בנותיו дочери بنات
`
